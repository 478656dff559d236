"""`/healthz`: the process lives. `/readyz`: what it depends on answers. `/metrics`: Prometheus."""

from collections.abc import Callable
from typing import Final

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_GET
from django_prometheus.exports import ExportToDjangoView

from seckill import dependencies, warmth
from seckill.admission.problems import Answer, method_not_allowed
from seckill.observability.multiprocess import forget_dead

_ALIVE: Final = Answer(
    "ALIVE",
    200,
    [(b"content-type", b"text/plain"), (b"content-length", b"2"), (b"cache-control", b"no-store")],
    b"ok",
)


def healthz(method: str) -> Answer:
    """Return the answer of `/healthz`, at once, whatever else is broken.

    No view: it is given in front of Django (`seckill/web.py`), whose lanes may all be taken.
    """
    return _ALIVE if method == "GET" else method_not_allowed(b"GET")


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
