"""`/healthz`: the process lives. `/readyz`: what it depends on answers. `/metrics`: Prometheus."""

from typing import Final

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_GET
from django_prometheus.exports import ExportToDjangoView

from seckill import dependencies
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
    """Ask every dependency; 503 when one does not answer or is set up wrongly.

    One shard or one proxy of several that is away is told as `degraded`, with 200: this process
    still serves all others, and no other process would serve them better.
    """
    states = {
        "database": dependencies.database(),
        "partitions": dependencies.partitions(),
        "redis": dependencies.redis(),
        "broker": dependencies.broker_port(),
        "warm": dependencies.warm(),
    }
    ready = not any(state.problem for state in states.values())
    body = {
        "ready": ready,
        "degraded": any(state.degraded for state in states.values()),
        "checks": {name: str(state) or "ok" for name, state in states.items()},
    }
    return JsonResponse(body, status=200 if ready else 503)


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Export this process's metrics, or all web processes' with PROMETHEUS_MULTIPROC_DIR."""
    forget_dead()
    return ExportToDjangoView(request)  # type: ignore[no-any-return]
