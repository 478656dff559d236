"""What a person may do on a page: a form for each act, or the reason why not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from ulid import ULID

from dlq_admin import permissions
from dlq_admin.errors import DlqAdminError
from dlq_admin.pages.guard import acting_user
from dlq_admin.pages.once import AlreadySent, once

if TYPE_CHECKING:
    from django.contrib.auth.models import User

REASON: Final = forms.CharField(
    max_length=500, widget=forms.Textarea(attrs={"rows": 2}), help_text="For the audit record."
)


class ActForm(forms.Form):
    """The form of one act; `submission` makes a double click harmless."""

    submission = forms.RegexField(r"\A[0-9A-Z]{26}\Z", widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Draw the key of this form."""
        kwargs["initial"] = {"submission": str(ULID()), **(kwargs.get("initial") or {})}
        super().__init__(*args, **kwargs)

    def arguments(self) -> dict[str, Any]:
        """Return what the service takes beside ids and user."""
        return {name: value for name, value in self.cleaned_data.items() if name != "submission"}


class ReasonForm(ActForm):
    """An act that needs a reason and nothing else."""

    reason = REASON


@dataclass(frozen=True, kw_only=True)
class Act:
    """An act as it is declared: who may, when, with what form, and what it calls.

    Args:
        name: in its address.
        label: of its button.
        permission: that it needs.
        form: its form class.
        call: the service; gets `user`, the form's arguments, and what the page adds.
        done: what the person is told.
        blocked: (subject of the page, user) → why it cannot be done now; empty when it can.
        danger: it cannot be undone.
        help: what it does, in a sentence.
    """

    name: str
    label: str
    permission: str
    form: type[ActForm]
    call: Callable[..., Any]
    done: str
    blocked: Callable[[Any, "User"], str] = lambda subject, user: ""
    danger: bool = False
    help: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """An act on a page; `why` is empty when its form may be used, `later`: not in this state."""

    act: Act
    url: str
    why: str = ""
    form: ActForm | None = None
    open: bool = False
    later: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """What became of a POST: go to `redirect`, or show the page again with `form` and `status`."""

    redirect: bool
    form: ActForm | None = None
    status: int = 200
    result: Any = None


def shown(
    acts: Sequence[Act],
    *,
    request: HttpRequest,
    subject: Any,
    url: Callable[[Act], str],
    bound: Mapping[str, ActForm] = {},
    initial: Mapping[str, Mapping[str, Any]] = {},
) -> list[Shown]:
    """Lay acts out: each with a form, or with the reason why not."""
    laid = []
    user = acting_user(request)
    for act in acts:
        form = bound.get(act.name)
        blocked = act.blocked(subject, user)
        why = blocked or missing_permission(request, act.permission)
        if form is None and not why:
            form = act.form(initial=dict(initial.get(act.name, {})))
        laid.append(
            Shown(
                act=act,
                url=url(act),
                why=why,
                form=form,
                open=act.name in bound,
                later=bool(blocked) and act.name not in bound,
            )
        )
    return sorted(laid, key=lambda one: (one.later, bool(one.why)))


def missing_permission(request: HttpRequest, permission: str) -> str:
    """Return why a permission is missing, naming who has it; empty when the user has it."""
    if request.user.has_perm(permission):
        return ""
    roles = roles_with(permission)
    return f"needs {permissions.codename(permission)}: {', '.join(roles) or 'no role has it'}"


def roles_with(permission: str) -> list[str]:
    """Return the roles that have a permission, without what all their names share."""
    return [
        role.removeprefix("dlq ") for role, has in permissions.ROLES.items() if permission in has
    ]


def send(request: HttpRequest, act: Act, form: ActForm, **more: Any) -> Sent:
    """Carry an act out.

    Args:
        request: the POST; the guard has checked method, token and permission.
        act: what to do.
        form: bound to the request.
        more: what the service takes beside `user` and the form's arguments.
    """
    if not form.is_valid():
        return Sent(redirect=False, form=form, status=422)
    user = acting_user(request)
    result = None
    try:
        with once(key=form.cleaned_data["submission"], user=user, action=act.name):
            result = act.call(user=user, **more, **form.arguments())
    except AlreadySent:
        messages.info(request, f"{act.label}: was done already.")
    except PermissionDenied as error:
        form.add_error(None, f"not permitted: {error}")
        return Sent(redirect=False, form=form, status=403)
    except DlqAdminError as error:
        form.add_error(None, str(error))
        return Sent(redirect=False, form=form, status=409)
    else:
        messages.success(request, act.done)
    return Sent(redirect=True, result=result)


def see_other(url: str) -> HttpResponse:
    """Redirect so that a reload repeats nothing."""
    response = HttpResponseRedirect(url)
    response.status_code = 303
    return response


@dataclass(frozen=True, kw_only=True)
class Table:
    """Acts by name."""

    acts: Sequence[Act]
    by_name: dict[str, Act] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {act.name: act for act in self.acts})
