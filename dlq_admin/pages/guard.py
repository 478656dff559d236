"""What stands before every page: staff, permission, method, CSRF, and a strict content policy.

`admin_view` checks for staff only; the permission is checked here and again in each service.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

from django.contrib import admin
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.views.decorators.http import require_POST, require_safe

from dlq_admin.pages import shell

View = Callable[..., HttpResponseBase]

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def page(permission: str) -> Callable[[View], View]:
    """Serve a page that only reads, to staff with a permission."""
    return lambda view: _guarded(require_safe(view), permission)


def action(permission: str) -> Callable[[View], View]:
    """Serve POST only, to staff with a permission; the token is checked by `admin_view`."""
    return lambda view: _guarded(require_POST(view), permission)


def action_by_name(acts: Mapping[str, Any]) -> Callable[[View], View]:
    """Serve POST only, to staff with the permission of the act that the address names."""

    def guard(view: View) -> View:
        @wraps(view)
        def checked(request: HttpRequest, *args: Any, name: str, **kwargs: Any) -> HttpResponseBase:
            if name not in acts:
                raise Http404(f"no such act: {name}")
            permission: str = acts[name].permission
            if not request.user.has_perm(permission):
                return denied(request, permission)
            return view(request, *args, name=name, **kwargs)

        return _policed(require_POST(checked))

    return guard


def staff_page(view: View) -> View:
    """Serve a page that only reads, to every member of staff."""
    return _policed(require_safe(view))


def acting_user(request: HttpRequest) -> User:
    """Return the logged-in user (the guard lets nobody else through)."""
    user = request.user
    if not isinstance(user, User):
        raise TypeError("the guard was left out")
    return user


def denied(request: HttpRequest, permission: str) -> HttpResponse:
    """Say which permission is missing."""
    context = shell.context(request, title="Not permitted", missing=permission)
    return TemplateResponse(request, "dlq_admin/denied.html", context, status=403)


def _guarded(view: View, permission: str) -> View:
    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        allowed = request.user.has_perm(permission)
        return view(request, *args, **kwargs) if allowed else denied(request, permission)

    return _policed(checked)


def _policed(view: View) -> View:
    """Let staff in, check the token of a POST, and send the content policy."""

    @wraps(view)
    def policed(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = view(request, *args, **kwargs)
        response.headers["Content-Security-Policy"] = _POLICY
        response.headers["Referrer-Policy"] = "same-origin"
        return response

    return admin.site.admin_view(policed)
