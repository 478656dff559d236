"""`/healthz`: the process lives. `/readyz`: what it depends on answers. `/metrics`: Prometheus."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_GET
from django_prometheus.exports import ExportToDjangoView

from seckill import dependencies, warmth
from seckill.observability.multiprocess import forget_dead


@require_GET
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer at once, whatever else is broken."""
    return HttpResponse("ok", content_type="text/plain")


@require_GET
def readyz(request: HttpRequest) -> JsonResponse:
    """Ask every dependency; 503 when one does not answer or is set up wrongly."""
    checks: dict[str, Callable[[], str]] = {
        "database": dependencies.database,
        "partitions": dependencies.partitions,
        "redis": dependencies.redis,
        "broker": dependencies.broker_port,
        "warm": warmth.problem,
    }
    problems = {name: problem for name, check in checks.items() if (problem := check())}
    body = {
        "ready": not problems,
        "checks": {name: problems.get(name, "ok") for name in checks},
    }
    return JsonResponse(body, status=503 if problems else 200)


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Export this process's metrics, or all web processes' with PROMETHEUS_MULTIPROC_DIR."""
    forget_dead()
    return ExportToDjangoView(request)  # type: ignore[no-any-return]
