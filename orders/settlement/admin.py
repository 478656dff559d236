"""Settlement for operators: every closed or settled sale, its report, its downloads."""

import json
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_http_methods, require_safe

from evidence import Evidence
from inventory import selectors
from inventory.errors import GateUnavailable
from inventory.states import ActivityStatus
from orders.errors import SettlementRefused
from orders.settlement import settle as settling
from orders.settlement.models import Settlement
from orders.settlement.report import SettlementReport, as_csv, settlement_report

VIEW_PERMISSION = "orders.view_report"


@admin.register(Settlement)
class SettlementAdmin(Evidence):
    """The list of settled sales, with those that are closed above it."""

    list_display = ("activity_id", "settled_at", "settled_by", "reason", "gate_deleted_at")
    ordering = ("-settled_at",)
    change_list_template = "admin/orders/settlement/list.html"

    def get_urls(self) -> list[URLPattern]:
        """Add the report's page and its downloads."""
        view = self.admin_site.admin_view
        return [
            path("sale/<int:activity_id>/", view(self.report), name="orders_settlement_report"),
            path(
                "sale/<int:activity_id>/report.<str:form>",
                view(self.download),
                name="orders_settlement_download",
            ),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show closed sales above the settled ones."""
        closed = [
            sale for sale in selectors.list_activities() if sale.status is ActivityStatus.CLOSED
        ]
        return super().changelist_view(request, {**(extra_context or {}), "closed": closed})

    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def report(self, request: HttpRequest, activity_id: int) -> HttpResponse:
        """Show the report; a POST settles the sale."""
        report = _report(request, activity_id)
        here = reverse("admin:orders_settlement_report", args=[activity_id])
        if request.method == "POST":
            try:
                settling.settle(
                    activity_id=activity_id,
                    reason=request.POST.get("reason", ""),
                    user=request.user,  # type: ignore[arg-type]
                )
            except (SettlementRefused, GateUnavailable) as error:
                self.message_user(request, str(error), messages.ERROR)
            else:
                self.message_user(request, "The sale is settled.", messages.SUCCESS)
                return HttpResponseRedirect(here)
        settled = Settlement.objects.filter(pk=activity_id).first()
        blockers: tuple[str, ...] = ()
        if settled is None:
            try:
                blockers = settling.blockers(activity_id)
            except GateUnavailable as error:
                blockers = (f"Redis does not answer: {error}",)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": f"Settlement of {report.name}",
            "report": report,
            "settled": settled,
            "blockers": blockers,
            "reason": request.POST.get("reason", ""),  # typed, and refused
            "may_settle": request.user.has_perm(settling.PERMISSION),
        }
        return TemplateResponse(request, "admin/orders/settlement/report.html", context)

    @method_decorator(require_safe)
    def download(self, request: HttpRequest, activity_id: int, form: str) -> HttpResponse:
        """Send the report as JSON or CSV; of a settled sale the JSON is the frozen one."""
        report = _report(request, activity_id)
        if form == "csv":
            content, kind = as_csv(report), "text/csv; charset=utf-8"
        elif form == "json":
            frozen = Settlement.objects.filter(pk=activity_id).values_list("report", flat=True)
            content = json.dumps(frozen.first() or report.as_json(), indent=2)
            kind = "application/json"
        else:
            raise Http404
        name = f"settlement-{activity_id}.{form}"
        return HttpResponse(
            content,
            content_type=kind,
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )


def _report(request: HttpRequest, activity_id: int) -> SettlementReport:
    if not request.user.has_perm(VIEW_PERMISSION):
        raise PermissionDenied(VIEW_PERMISSION)
    try:
        return settlement_report(activity_id)
    except LookupError:
        raise Http404 from None
