"""Buyers at an even rate for as long as one likes: one generator after the other, without a gap."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from bench.bench import Bench
from bench.generator import Generator, latency
from bench.loadgen.histogram import Histogram
from bench.loadgen.plan import Mode, Plan
from bench.series import Point, thin
from seckill.demo.sale import Sale

PIECE_S: Final = 60.0  # of one generator: its buyers are all made before its clock starts
_MOMENT_S: Final = 3.0  # for those who were asked to come again


@dataclass(kw_only=True)
class Streamed:
    """What all generators of a stream saw."""

    accepted_ids: list[str] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    errors: int = 0
    pending: int = 0  # answered 202 before the broker had confirmed
    latency: Histogram = field(default_factory=Histogram)
    accepted_per_s: list[Point] = field(default_factory=list)

    def add(self, result: dict[str, Any], *, ids: list[str], rates: list[Point], at: float) -> None:
        """Take in one generator's result, which began `at` seconds after the first one."""
        self.accepted_ids += ids
        for code, count in result["codes"].items():
            self.codes[code] = self.codes.get(code, 0) + count
        self.pending += result["pending"]
        self.errors += sum(result["errors"].values())
        self.latency.merge(latency(result).sparse())
        self.accepted_per_s += [(round(at + second, 2), rate) for second, rate in rates]


def pieces(seconds: float) -> list[float]:
    """Return the lengths of the generators' runs: `PIECE_S` each, the last one what is left."""
    whole, rest = divmod(seconds, PIECE_S)
    return [PIECE_S] * int(whole) + ([rest] if rest else [])


def stream(bench: Bench, sale: Sale, *, rate: float, seconds: float) -> Streamed:
    """Let `rate` buyers a second come for `seconds`; each asks until he has an answer."""
    found = Streamed()
    lengths = pieces(seconds)
    with ExitStack() as stack:
        waiting = _next(bench, sale, stack, rate=rate, seconds=lengths[0], place=0)
        began = time.monotonic()
        before: tuple[Generator, float] | None = None
        for place in range(len(lengths)):
            at = time.monotonic() - began
            waiting.go()
            running = waiting
            if before is not None:
                _take(found, *before)
            before = running, at
            if place + 1 < len(lengths):
                waiting = _next(
                    bench, sale, stack, rate=rate, seconds=lengths[place + 1], place=place + 1
                )
                time.sleep(max(0.0, began + sum(lengths[: place + 1]) - time.monotonic()))
        if before is not None:
            _take(found, *before)
    found.accepted_per_s = thin(found.accepted_per_s)
    return found


def _next(
    bench: Bench, sale: Sale, stack: ExitStack, *, rate: float, seconds: float, place: int
) -> Generator:
    plan = Plan(
        port=bench.rig.port,
        path=sale.path,
        mode=Mode.CROWD,
        connections=bench.connections or 50,
        seconds=seconds + _MOMENT_S,
        arrival_s=seconds,
        rush=0.0,
        users=max(1, round(rate * seconds)),
        user_prefix=f"buyer-{place}-",
        clickers=0.0,
        key_reusers=0.0,
        gives_up_after_503=0.0,
    )
    generator = stack.enter_context(bench.load(plan, name=f"load-{place}"))
    generator.wait_ready(timeout_s=60)
    return generator


def _take(found: Streamed, generator: Generator, at: float) -> None:
    result = generator.result(timeout_s=PIECE_S + 60)
    # What came in the moment after the piece belongs to its last look; the next piece has begun.
    rates = [point for point in generator.rates("accepted") if point[0] <= PIECE_S]
    found.add(result, ids=generator.accepted_ids(), rates=rates, at=at)
