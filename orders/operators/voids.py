"""Declaring a sale void, for two people: one asks, another approves."""

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_http_methods

from inventory import selectors
from inventory.states import ActivityStatus
from orders.amounts import money
from orders.models import ActivityVoid
from orders.operators.confirm import Act, ReasonForm, YesForm, confirm, require
from orders.operators.read_only import Evidence
from orders.void import (
    APPROVE_PERMISSION,
    REQUEST_PERMISSION,
    VoidEffect,
    approve_void,
    request_void,
    void_effects,
    withdraw_void,
)

_ENDED = frozenset({ActivityStatus.DRAFT, ActivityStatus.SETTLED})
_LIST = "admin:orders_activityvoid_changelist"
_WHAT = {"unpaid": "cancelled", "paid": "refunded", "kept": "kept: being fulfilled"}


class AskForm(ReasonForm):
    """Which sale, and why."""

    activity_id = forms.TypedChoiceField(label="Sale", coerce=int)
    field_order = ("activity_id", "reason")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Offer the sales that were warmed up and are not settled."""
        super().__init__(*args, **kwargs)
        field = self.fields["activity_id"]
        assert isinstance(field, forms.TypedChoiceField)  # noqa: S101
        # Nothing is chosen beforehand: one keystroke too few must not name the wrong sale.
        field.choices = [
            ("", "choose a sale"),
            *(
                (sale.activity_id, f"{sale.name} ({sale.activity_id}, {sale.status})")
                for sale in selectors.list_activities()
                if sale.status not in _ENDED
            ),
        ]

    def arguments(self) -> dict[str, Any]:
        """Add the sale."""
        return super().arguments() | {"activity_id": self.cleaned_data["activity_id"]}


@admin.register(ActivityVoid)
class ActivityVoidAdmin(Evidence):
    """Who asked, who approved or took it back. Rows are made and changed by the service only."""

    list_display = (
        "id", "activity_id", "reason", "requested_by", "requested_at", "approved_by",
        "approved_at", "withdrawn_by", "withdrawn_at",
    )  # fmt: skip
    search_fields = ("=activity_id",)
    search_help_text = "an activity's number"
    ordering = ("-id",)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may ask or approve sees them, too."""
        user = request.user
        return (
            super().has_view_permission(request, obj)
            or user.has_perm(REQUEST_PERMISSION)
            or user.has_perm(APPROVE_PERMISSION)
        )

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may ask finds the way to it."""
        return request.user.has_perm(REQUEST_PERMISSION)

    def get_urls(self) -> list[URLPattern]:
        """Add the second person's page and the way back."""
        view = self.admin_site.admin_view
        return [
            path("<int:void_id>/approve/", view(self.approve), name="orders_void_approve"),
            path("<int:void_id>/withdraw/", view(self.withdraw), name="orders_void_withdraw"),
            *super().get_urls(),
        ]

    def acts(self, row: ActivityVoid, request: HttpRequest) -> list[tuple[str, str]]:
        """Approve (not one's own) and withdraw, while it is open."""
        if row.approved_at or row.withdrawn_at:
            return []
        user = request.user
        may_approve = user.has_perm(APPROVE_PERMISSION)
        found = []
        if may_approve and row.requested_by != user.get_username():
            found.append(("Approve", reverse("admin:orders_void_approve", args=[row.pk])))
        if may_approve or user.has_perm(REQUEST_PERMISSION):
            found.append(("Withdraw", reverse("admin:orders_void_withdraw", args=[row.pk])))
        return found

    @method_decorator(require_http_methods(["GET", "POST"]))
    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Ask for a sale to be declared void."""
        require(request, REQUEST_PERMISSION)

        def do(*, activity_id: int, reason: str) -> tuple[str, str]:
            void_id = request_void(activity_id=activity_id, reason=reason, user=request.user)  # type: ignore[arg-type]
            to = reverse("admin:orders_activityvoid_change", args=[void_id])
            return "Asked for. Another person must approve it.", to

        act = Act(
            title="Ask for a sale to be declared void",
            button="Ask for it",
            opts=self.opts,
            back=reverse(_LIST),
            facts=[("asked by", request.user.get_username())],
            effects=(
                "Nothing yet: another person must approve it.",
                "Then the sale stops for good, accepted buyers without an order are refused,"
                " unpaid orders are cancelled and paid ones refunded.",
            ),
            do=do,
            form=AskForm,
        )
        return confirm(request, act)

    @method_decorator(require_http_methods(["GET", "POST"]))
    def approve(self, request: HttpRequest, void_id: int) -> HttpResponse:
        """Declare the sale void: the second person's word."""
        require(request, APPROVE_PERMISSION)
        row = get_object_or_404(ActivityVoid, pk=void_id)
        if row.requested_by == request.user.get_username():
            raise PermissionDenied("another person must approve")

        def do() -> tuple[str, str]:
            approve_void(void_id=void_id, user=request.user)  # type: ignore[arg-type]
            to = reverse("admin:orders_activityvoid_change", args=[void_id])
            return f"Activity {row.activity_id} is void; its orders end within seconds.", to

        act = Act(
            title=f"Declare activity {row.activity_id} void",
            button="Declare it void",
            opts=self.opts,
            back=reverse(_LIST),
            facts=_facts(row),
            effects=(
                "It cannot be taken back, and the sale never opens again.",
                "New buyers are refused within a second. Accepted buyers without an order are"
                " refused (ACTIVITY_VOIDED) and freed.",
                *(_effect(effect) for effect in void_effects(row.activity_id)),
                "Units of ended orders come back to the stock and are not sold any more.",
            ),
            do=do,
            form=YesForm,
        )
        return confirm(request, act)

    @method_decorator(require_http_methods(["GET", "POST"]))
    def withdraw(self, request: HttpRequest, void_id: int) -> HttpResponse:
        """Take a request back that nobody has approved."""
        if not request.user.has_perm(APPROVE_PERMISSION):
            require(request, REQUEST_PERMISSION)
        row = get_object_or_404(ActivityVoid, pk=void_id)

        def do() -> tuple[str, str]:
            withdraw_void(void_id=void_id, user=request.user)  # type: ignore[arg-type]
            return "Taken back.", reverse(_LIST)

        act = Act(
            title=f"Withdraw the request to declare activity {row.activity_id} void",
            button="Withdraw",
            opts=self.opts,
            back=reverse(_LIST),
            facts=_facts(row),
            effects=("The sale goes on as it is. The request stays on record as withdrawn.",),
            do=do,
            form=YesForm,
        )
        return confirm(request, act)


def _facts(row: ActivityVoid) -> list[tuple[str, object]]:
    return [
        ("activity", row.activity_id),
        ("asked for by", row.requested_by),
        ("at", f"{row.requested_at:%Y-%m-%d %H:%M:%S} UTC"),
        ("reason", row.reason),
    ]


def _effect(effect: VoidEffect) -> str:
    amount = money(effect.amount_cents, effect.currency)
    orders, are = ("order", "is") if effect.orders == 1 else ("orders", "are")
    units = "unit" if effect.units == 1 else "units"
    state = "" if effect.what == "kept" else f"{effect.what} "
    return (
        f"{effect.orders} {state}{orders} ({effect.units} {units}, {amount})"
        f" {are} {_WHAT[effect.what]}."
    )
