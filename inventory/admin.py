"""Sales for operators: SKUs are editable in DRAFT only, everything after is a guarded operation."""

from collections.abc import Callable
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_http_methods

from evidence import BoundedPaginator, Evidence
from inventory import operations, selectors
from inventory.errors import OperationRefused
from inventory.gate_status import GateReport, report_gate
from inventory.models import (
    Activity,
    AdmissionOptions,
    DenyEntry,
    GateOperation,
    RebuildRun,
    Sku,
    Stock,
    StockLedger,
)
from inventory.operation_forms import FORMS, IN_FLIGHT, OFFERED, OperationForm
from inventory.states import ActivityStatus, OperationKind

SERVICES: Final[dict[OperationKind, Callable[..., str]]] = {
    OperationKind.WARM_UP: operations.warm_up,
    OperationKind.OPEN: operations.request_open,
    OperationKind.PAUSE: operations.request_pause,
    OperationKind.RESUME: operations.request_resume,
    OperationKind.CLOSE: operations.request_close,
    OperationKind.TOP_UP: operations.request_top_up,
    OperationKind.CUT: operations.request_cut,
    OperationKind.EDIT: operations.request_edit,
    OperationKind.STOP: operations.request_stop,
}


def _is_draft(activity: Activity | None) -> bool:
    return activity is None or activity.status == ActivityStatus.DRAFT


def _is_stopped(record: selectors.ActivityRecord, report: GateReport) -> bool:
    """Tell whether an emergency stop would change nothing: closed, and every gate knows it."""
    return (
        record.status is ActivityStatus.CLOSED
        and bool(report.gates)
        and all(gate is not None and gate.stopped for gate in report.gates)
    )


class ActivityForm(forms.ModelForm):  # type: ignore[type-arg]
    """A DRAFT's own fields; after DRAFT the page has none of them, only its admission options."""

    def clean(self) -> dict[str, Any] | None:
        """Refuse what was typed for a DRAFT that has been warmed up meanwhile."""
        if not _is_draft(self.instance) and "name" in self.data:
            raise ValidationError(
                f"Nothing was saved: the sale is {self.instance.status} by now, and what you had "
                "open was its draft. Its window and limits are changed by the operation Edit; "
                "save again to change its admission options, which stand below as you typed them."
            )
        return super().clean()


class SkuInline(admin.TabularInline):  # type: ignore[type-arg]
    model = Sku
    extra = 1

    def has_add_permission(self, request: HttpRequest, obj: Activity | None = None) -> bool:
        return _is_draft(obj) and super().has_add_permission(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: Activity | None = None) -> bool:
        return _is_draft(obj) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Activity | None = None) -> bool:
        return _is_draft(obj) and super().has_delete_permission(request, obj)


class AdmissionInline(admin.StackedInline):  # type: ignore[type-arg]
    """Who may try: may change at any time, also while the sale runs (within a second)."""

    model = AdmissionOptions
    can_delete = False


@admin.register(DenyEntry)
class DenyEntryAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("user_id", "activity", "reason", "expires_at", "created_by", "created_at")
    list_select_related = ("activity",)
    search_fields = ("=user_id",)
    search_help_text = "a whole user id"
    show_full_result_count = False
    paginator = BoundedPaginator

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # an entry is made or removed, so that processes notice by its number

    def save_model(self, request: HttpRequest, obj: DenyEntry, form: Any, change: bool) -> None:
        obj.created_by = request.user.get_username()
        super().save_model(request, obj, form, change)


@admin.register(Activity)
class ActivityAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("name", "id", "status", "starts_at", "ends_at", "is_test", "opened_at")
    list_filter = ("status", "is_test")
    search_fields = ("name",)
    form = ActivityForm
    inlines = (SkuInline, AdmissionInline)
    readonly_fields = ("status", "opened_at", "version")
    change_form_template = "admin/inventory/activity/change_form.html"

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Activity | None:
        """Lock the row that a form is about to write: all its columns are saved.

        An operator's change or a noted loss waits until that is done, or is read here; and a DRAFT
        stays one until its SKUs are saved.
        """
        found: Activity | None = super().get_object(request, object_id, from_field)
        # The change and delete pages run a POST in a transaction; others only read.
        if found is None or not transaction.get_connection().in_atomic_block:
            return found
        return Activity.objects.select_for_update(no_key=True).filter(pk=found.pk).first()

    def get_readonly_fields(self, request: HttpRequest, obj: Activity | None = None) -> list[str]:
        if _is_draft(obj):
            return list(self.readonly_fields)
        names = [field.name for field in Activity._meta.fields if field.name != "id"]
        return [*names]

    def has_delete_permission(self, request: HttpRequest, obj: Activity | None = None) -> bool:
        return _is_draft(obj) and super().has_delete_permission(request, obj)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        return {}  # deleting in bulk would not look at the status

    def get_urls(self) -> list[URLPattern]:
        operate = path(
            "<int:activity_id>/operate/<str:kind>/",
            self.admin_site.admin_view(self.operate),
            name="inventory_activity_operate",
        )
        return [operate, *super().get_urls()]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        obj: Activity | None = kwargs.get("obj")
        record = selectors.activity_record(obj.pk) if obj and obj.pk else None
        if record is not None:
            context["record"] = record
            context["gate_report"] = report = report_gate(record)
            context["gates"] = report.by_sku(record)
            context["operations"] = [
                {
                    "label": kind.value.replace("_", " ").capitalize(),
                    "url": reverse(
                        "admin:inventory_activity_operate", args=[record.activity_id, kind.value]
                    ),
                    "danger": kind is OperationKind.STOP,
                }
                for kind in SERVICES
                if record.status in OFFERED[kind]
                and not (kind is OperationKind.STOP and _is_stopped(record, report))
                and request.user.has_perm(operations.PERMISSIONS[kind])
            ]
        return super().render_change_form(request, context, *args, **kwargs)

    @method_decorator(require_http_methods(["GET", "POST"]))
    def operate(self, request: HttpRequest, activity_id: int, kind: str) -> HttpResponse:
        """Show the confirmation (GET) or make the request (POST)."""
        record = selectors.activity_record(activity_id)
        if record is None or kind not in OperationKind.__members__:
            raise Http404(f"no operation {kind} of activity {activity_id}")
        what = OperationKind(kind)
        user = request.user
        if not isinstance(user, User) or not user.has_perm(operations.PERMISSIONS[what]):
            raise PermissionDenied(operations.PERMISSIONS[what])
        form_class = FORMS.get(what, OperationForm)
        form = form_class(request.POST if request.method == "POST" else None, record=record)
        if request.method == "POST" and form.is_valid():
            try:
                operation_id = SERVICES[what](
                    activity_id=activity_id, user=user, **form.arguments()
                )
            except OperationRefused as error:
                form.add_error(None, str(error))
            else:
                status, note = selectors.operation_status(operation_id)
                self.message_user(
                    request,
                    f"{what.value} {operation_id}: {status}{note and ', '}{note}",
                    messages.SUCCESS if status == "DONE" else messages.WARNING,
                )
                return HttpResponseRedirect(
                    reverse("admin:inventory_activity_change", args=[activity_id])
                )
        report = report_gate(record)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": f"{what.value.replace('_', ' ').capitalize()}: {record.name}",
            "record": record,
            "form": form,
            "in_flight": IN_FLIGHT[what],
            "what": what.value.replace("_", " ").capitalize(),
            "gate_report": report,
            "gates": report.by_sku(record),
            "danger": what is OperationKind.STOP,
        }
        return TemplateResponse(request, "admin/inventory/activity/operate.html", context)


@admin.register(GateOperation)
class GateOperationAdmin(Evidence):
    list_display = (
        "operation_id",
        "kind",
        "status",
        "activity",
        "sku",
        "units",
        "units_done",
        "requested_by",
        "requested_at",
        "done_at",
        "note",
    )
    list_filter = ("kind", "status")
    search_fields = ("operation_id", "activity__name", "reason")
    list_select_related = ("activity", "sku", "requested_by")


@admin.register(Stock)
class StockAdmin(Evidence):
    list_display = ("sku", "activity_id", "available", "initial", "topped_up", "cut", "withheld")
    list_select_related = ("sku",)


@admin.register(StockLedger)
class StockLedgerAdmin(Evidence):
    list_display = ("id", "activity_id", "sku_id", "kind", "source_id", "delta", "created_at")
    list_filter = ("kind",)
    search_fields = ("=source_id",)


@admin.register(RebuildRun)
class RebuildRunAdmin(Evidence):
    list_display = (
        "activity",
        "number",
        "status",
        "loss_noted",
        "forced",
        "reason",
        "requested_by",
        "began_at",
        "ended_at",
    )
    list_filter = ("status", "loss_noted", "forced")
    ordering = ("-began_at",)
    list_select_related = ("activity", "requested_by")
