"""Plain pages: the list of sales, one sale with its buy button, log-in, preflight.

The page of a sale talks to the same API as any client, with the token that it is given here.
"""

from collections.abc import Callable
from functools import wraps

from django import forms
from django.conf import settings
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth import authenticate
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from inventory.selectors import activity_detail, list_activities
from seckill import preflight as preflight_checks
from seckill.admission.tokens import USER_ID, InvalidToken, issue
from seckill.api.activities import activity_document
from seckill.password_limit import TOO_MANY, WINDOW_S, may_guess

View = Callable[..., HttpResponse]

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_BUYER = "buyer"


def guarded(view: View) -> View:
    """Send a strict Content-Security-Policy with a page: everything comes from here, no inline."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        response = view(request, *args, **kwargs)
        response.headers["Content-Security-Policy"] = _POLICY
        response.headers["Cache-Control"] = "no-store"
        return response

    return wrapped


class DemoLoginForm(forms.Form):
    """Any buyer's id; only where the demo log-in is on."""

    user_id = forms.RegexField(rf"^{USER_ID.pattern}\Z", max_length=64, label="Buyer")


class LoginForm(forms.Form):
    """A Django user's name and password."""

    username = forms.RegexField(rf"^{USER_ID.pattern}\Z", max_length=64, label="Name")
    password = forms.CharField(max_length=128, widget=forms.PasswordInput, strip=False)


@require_GET
@guarded
def start(request: HttpRequest) -> HttpResponse:
    """List the sales."""
    sales = [activity_document(sale) for sale in list_activities()[:100]]
    return render(
        request, "pages/start.html", {"sales": sales, "buyer": request.session.get(_BUYER)}
    )


@require_GET
@guarded
def activity(request: HttpRequest, activity_id: int) -> HttpResponse:
    """Show one sale."""
    record = activity_detail(activity_id)
    if record is None:
        raise Http404
    buyer = request.session.get(_BUYER)
    context = {
        "sale": activity_document(record),
        "buyer": buyer,
        "token": _token(buyer) if buyer else "",
        "demo": settings.SECKILL_DEMO_LOGIN,
    }
    return render(request, "pages/activity.html", context)


def _token(user_id: str) -> str:
    try:
        return issue(user_id, use="access", lifetime_s=settings.SECKILL_ACCESS_TOKEN_S)
    except InvalidToken:
        return ""


@require_http_methods(["GET", "POST"])
@guarded
def login(request: HttpRequest) -> HttpResponse:
    """Log a buyer in for these pages."""
    kind = DemoLoginForm if settings.SECKILL_DEMO_LOGIN else LoginForm
    form = kind(request.POST or None)
    target = request.POST.get("next") or request.GET.get("next") or ""
    if not url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()}):
        target = reverse("start")
    status = 200 if request.method == "GET" else 422
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        if "username" in data and not may_guess(data["username"]):
            form.add_error(None, TOO_MANY)
            status = 429
        elif (user_id := _buyer_of(request, data)) is not None:
            request.session.cycle_key()
            request.session[_BUYER] = user_id
            return HttpResponseRedirect(target)
        else:
            form.add_error(None, "Name or password is wrong.")
    response = render(
        request,
        "pages/login.html",
        {"form": form, "next": target, "demo": settings.SECKILL_DEMO_LOGIN},
        status=status,
    )
    if status == 429:
        response.headers["Retry-After"] = str(WINDOW_S)
    return response


def _buyer_of(request: HttpRequest, data: dict[str, str]) -> str | None:
    """Return the id of who logs in, None when the password is wrong."""
    if "user_id" in data:
        return data["user_id"]
    user = authenticate(request, username=data["username"], password=data["password"])
    return user.get_username() if user is not None else None


@require_POST
def logout(request: HttpRequest) -> HttpResponse:
    """Forget the buyer."""
    request.session.pop(_BUYER, None)
    return HttpResponseRedirect(reverse("start"))


@require_GET
@staff_member_required
@guarded
def preflight(request: HttpRequest, activity_id: int) -> HttpResponse:
    """Show the preflight table of a sale to staff."""
    checks = preflight_checks.run(activity_id)
    return render(
        request,
        "pages/preflight.html",
        {
            "activity_id": activity_id,
            "checks": checks,
            "ready": all(check.ok for check in checks),
        },
        status=200,
    )
