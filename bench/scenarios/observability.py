"""`observability-cost`: CPU of a web process for each accepted reservation, with and without.

Pairs of equal runs, in turns: everything on (metrics of several processes, JSON logs at INFO, one
purchase in a hundred traced, to a collector that drops it) and everything off. Buyers come by a
clock and leave the cores time to rest: at full load the size of the batches, and with it the price
of a request, depends on the machine's mood. The median of the pairs' shares counts.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from statistics import median
from typing import Final

from bench.bench import LIFTED, Bench, Outcome
from bench.loadgen.plan import Mode, Plan
from seckill.demo.sale import look, make_sale, open_sale
from seckill.demo.supervision import Program

PAIRS: Final = 7
BAR: Final = 0.05
_SECONDS: Final = 8.0
_PER_S: Final = 1_500  # a quarter to a half of what two cores accept


def observability_cost(bench: Bench) -> Outcome:
    """Run the pairs; the order within them alternates."""
    connections = bench.connections or 200
    seconds = bench.wish.seconds or _SECONDS
    costs: list[tuple[float, float]] = []
    rates: list[float] = []
    with _collector() as endpoint:
        for pair in range(PAIRS):
            found: dict[bool, float] = {}
            for on in (True, False) if pair % 2 == 0 else (False, True):
                environment = _on(bench, endpoint) if on else _OFF
                found[on], rate = _one(bench, environment, connections, seconds)
                rates += [rate] if on else []
            costs.append((found[True], found[False]))
            bench.say(f"pair {pair + 1}: {found[True]:.0f} µs with, {found[False]:.0f} µs without")
    shares = [with_ / without - 1 for with_, without in costs]
    share = median(shares)
    outcome = Outcome(
        rate_per_s=round(median(rates), 1),
        p50_ms=0.0,
        p95_ms=0.0,
        p99_ms=0.0,
        errors=0,
        connections=connections,
        more={
            "cpu_us_with": [round(with_, 1) for with_, _ in costs],
            "cpu_us_without": [round(without, 1) for _, without in costs],
            "cost_share": round(share, 4),
        },
    )
    outcome.notes.append(f"metrics, logs and traces: {share:.1%} of the CPU (median of {PAIRS})")
    if share > BAR:
        outcome.more["breaches"] = [f"{share:.1%} of the CPU, at most {BAR:.0%} is allowed"]
    return outcome


_OFF: Final = {"SECKILL_METRICS": "off", "SECKILL_LOG_LEVEL": "CRITICAL", "SECKILL_TRACES": "off"}


def _on(bench: Bench, endpoint: str) -> dict[str, str]:
    folder = bench.folder / "web-metrics"
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    return {
        "PROMETHEUS_MULTIPROC_DIR": str(folder),
        "SECKILL_LOG_LEVEL": "INFO",
        "SECKILL_TRACES": "otlp",
        "SECKILL_TRACE_RATIO": "0.01",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
    }


def _one(
    bench: Bench, environment: dict[str, str], connections: int, seconds: float
) -> tuple[float, float]:
    """Return CPU microseconds for each accepted reservation, and accepted/s."""

    def adapt(program: Program) -> Program:
        return replace(program, environment={**program.environment, **environment})

    bench.rig.stop_processes()
    bench.rig.start(port=18_000, only=["web"], adapt=adapt)
    bench.rig.wait_web()
    place = make_sale(name="bench cost", stock=LIFTED, max_open=LIFTED, max_pending=LIFTED)
    open_sale(place)
    plan = Plan(
        port=bench.rig.port,
        path=place.path,
        mode=Mode.CROWD,
        connections=connections,
        seconds=seconds + 10,
        users=int(seconds * _PER_S),
        arrival_s=seconds,
        rush=0.2,
        clickers=0.0,
        key_reusers=0.0,
    )
    with bench.load(plan) as load:
        load.wait_ready(timeout_s=120)
        before_s = bench.rig.supervisor.python_cpu_s()
        load.go()
        result = load.result(timeout_s=plan.seconds + 60)
    used_s = bench.rig.supervisor.python_cpu_s() - before_s
    accepted = LIFTED - look(place).left_at_gate
    return used_s / max(accepted, 1) * 1e6, result["accepted"] / result["seconds"]


class _Sink(BaseHTTPRequestHandler):
    """Takes spans and drops them."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def _collector() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Sink)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
