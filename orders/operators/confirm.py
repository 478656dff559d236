"""One page for each act of an operator: what is now, what will happen, why, and yes.

A GET shows, only a POST acts; the service decides again whether it may and can be done. What it
refuses stands on the form, with everything that was typed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from inventory.errors import InventoryError
from orders.errors import OrdersError

_RESTOCK: Final = "restock"


class YesForm(forms.Form):
    """A bare confirmation, for an act whose reason is written already."""

    def arguments(self) -> dict[str, Any]:
        """Return what the service takes beside its row and the user."""
        return {}


class ReasonForm(YesForm):
    """A confirmation that says why."""

    reason = forms.CharField(
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Kept for ever beside your name.",
    )

    def arguments(self) -> dict[str, Any]:
        """Add the reason."""
        return {"reason": self.cleaned_data["reason"]}


class ReferenceForm(ReasonForm):
    """And what proves it."""

    reference = forms.CharField(
        max_length=64,
        help_text="What proves it: the bank's number of the transfer, a case of the provider's.",
    )
    field_order = ("reference", "reason")

    def arguments(self) -> dict[str, Any]:
        """Add the reference."""
        return super().arguments() | {"reference": self.cleaned_data["reference"]}


class UnitsForm(ReasonForm):
    """And where the units go: nothing is chosen beforehand."""

    units = forms.ChoiceField(
        choices=[
            (_RESTOCK, "put them on sale again"),
            ("withhold", "withhold them: nobody can buy them in this sale"),
        ],
        widget=forms.RadioSelect,
    )
    field_order = ("units", "reason")

    def arguments(self) -> dict[str, Any]:
        """Add `restock`."""
        return super().arguments() | {"restock": self.cleaned_data["units"] == _RESTOCK}


@dataclass(frozen=True, kw_only=True)
class Act:
    """An act and how its page tells of it.

    `facts` is what is now, `effects` what will happen, `do` takes the form's arguments and returns
    the sentence that says what was done and the address to go to.
    """

    title: str
    button: str
    opts: Any
    back: str
    facts: Sequence[tuple[str, object]]
    effects: Sequence[str]
    do: Callable[..., tuple[str, str]]
    form: type[YesForm] = ReasonForm


def require(request: HttpRequest, *permissions: str) -> None:
    """Refuse those who may not.

    Raises:
        PermissionDenied: the user lacks one of the permissions.
    """
    if not request.user.has_perms(permissions):
        raise PermissionDenied(", ".join(permissions))


def confirm(request: HttpRequest, act: Act) -> HttpResponse:
    """Show the act's page (GET) or do it (POST)."""
    form = act.form(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            done, to = act.do(**form.arguments())
        except (OrdersError, InventoryError) as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, done)
            return HttpResponseRedirect(to)
    context = {
        **admin.site.each_context(request),
        "opts": act.opts,
        "title": act.title,
        "act": act,
        "form": form,
    }
    return TemplateResponse(request, "admin/orders/confirm.html", context)
