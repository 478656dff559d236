"""The monitor's pages: one that draws itself from the stream, its data, and the workers.

Everything is a GET that reads; who may not see sales gets 403, who is not logged in the log-in.
"""

from typing import Any, Final

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from inventory.errors import InventoryError
from inventory.gate import gate
from messaging import selectors
from messaging.selectors import WorkerRecord
from seckill.monitor import crew, store
from seckill.monitor.snapshot import LIMITS
from seckill.monitor.viewers import PERMISSION, WORKERS_PERMISSION
from seckill.pages.views import guarded

_LIMITS: Final = ",".join(
    f'"{name}":[{warn},{bad}]' for name, (warn, bad) in sorted(LIMITS.items())
)


@require_safe
@guarded
def monitor(request: HttpRequest) -> HttpResponse:
    """Show the live sale monitor; `?wall` fills the screen, `?sale=ID` stays with a sale.

    Raises:
        PermissionDenied: the user may not see sales.
    """
    _allow(request, PERMISSION)
    context = {
        **admin.site.each_context(request),
        "title": "Live sale monitor",
        "wall": "wall" in request.GET,
        "is_nav_sidebar_enabled": False,
        "may_see_workers": request.user.has_perm(WORKERS_PERMISSION),
    }
    return TemplateResponse(request, "admin/monitor/monitor.html", context)


@require_safe
@guarded
def data(request: HttpRequest) -> HttpResponse:
    """Return the newest snapshot and the points of the last minutes, as they stand in Redis.

    Raises:
        PermissionDenied: the user may not see sales.

    Cost: two reads of Redis.
    """
    _allow(request, PERMISSION)
    try:
        found = gate().run(store.read())
        points = gate().run(store.read_points())
    except InventoryError as error:
        return HttpResponse(
            f'{{"problem":"{type(error).__name__}"}}', status=503, content_type="application/json"
        )
    body = (
        f'{{"now_ms":{found.now_ms},"limits":{{{_LIMITS}}},'
        f'"snapshot":{found.snapshot or "null"},"points":[{",".join(points)}]}}'
    )
    return HttpResponse(body, content_type="application/json")


@require_safe
@guarded
def workers(request: HttpRequest) -> HttpResponse:
    """Show every worker's heartbeat, straight from PostgreSQL: works when nobody samples.

    Raises:
        PermissionDenied: the user may not see heartbeats.

    Cost: three statements.
    """
    _allow(request, WORKERS_PERMISSION)
    now = timezone.now()
    found = selectors.workers()
    paused = {group.group for group in selectors.paused_groups()}
    by_role: dict[str, list[dict[str, Any]]] = {}
    for worker in found:
        silent = crew.is_silent(worker, now)
        if worker.alive or silent:
            by_role.setdefault(worker.role, []).append(
                {
                    "record": worker,
                    "loop": worker.worker_id.rpartition("/")[2],
                    "process": worker.worker_id.partition("/")[0],
                    "age_s": max(0.0, (now - worker.beat_at).total_seconds()),
                    "state": "SILENT" if silent else worker.state,
                    "paused": worker.group in paused,
                    "detail": _detail(worker),
                }
            )
    context = {
        **admin.site.each_context(request),
        "title": "Workers",
        "roles": [
            {
                "role": role,
                "members": sorted(members, key=lambda member: member["record"].worker_id),
                "silent": sum(member["state"] == "SILENT" for member in members),
            }
            for role, members in sorted(by_role.items())
        ],
        "now": now,
        "is_nav_sidebar_enabled": False,
    }
    return TemplateResponse(request, "admin/monitor/workers.html", context)


def _detail(worker: WorkerRecord) -> list[tuple[str, Any]]:
    """Return what else a worker says, without what has columns of its own."""
    return [
        (name, value)
        for name, value in sorted(worker.detail.items())
        if name not in {"lag_s", "drain_per_s"}
    ]


def _allow(request: HttpRequest, permission: str) -> None:
    if not request.user.has_perm(permission):
        raise PermissionDenied(permission)
