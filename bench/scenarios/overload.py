"""`overload`: three times more buyers than consumers drain, without the governor and with it."""

import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any, Final

from django.db import connection

from bench.answers import Answers, sort_answers
from bench.audit import audit, wait_for_orders
from bench.bench import LIFTED, Bench, Outcome
from bench.commits import Commits, read_commits
from bench.loadgen.plan import Mode, Plan
from bench.scenarios.warm_up import warm_up
from messaging import selectors
from messaging.topology import CG_ORDER_CREATE
from seckill.demo.sale import Sale, make_sale, open_sale
from seckill.demo.supervision import Program
from seckill.governor import history

_TIMES: Final = 3.0
_SECONDS: Final = 20.0
_SLO_MS: Final = 3_000.0
_VALIDITY_S: Final = 30
_PROBE_BUYERS: Final = 6_000
# So small a batch makes the consumers the narrow place, whatever the machine: the load generator
# must be able to offer three times what they drain, on the same cores.
_BATCH: Final = "8"


@dataclass
class Watch:
    """What the order group said of itself, once a second."""

    series: list[dict[str, float]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Watch":
        """Begin to look."""
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)

    def highest(self, name: str) -> float:
        """Return the worst second."""
        return max((second[name] for second in self.series), default=0.0)

    def _look(self) -> None:
        began = time.monotonic()
        try:
            while not self._stop.wait(1.0):
                details = [one.detail for one in selectors.group_members(CG_ORDER_CREATE)]
                self.series.append(
                    {"at_s": round(time.monotonic() - began, 1)}
                    | {
                        name: max((float(d.get(name, 0)) for d in details), default=0.0)
                        for name in ("lag_s", "pool_wait_p95_ms", "tx_p99_ms")
                    }
                )
        finally:
            connection.close()


def overload(bench: Bench) -> Outcome:
    """The same crowd twice in one run; the governed half must keep every promise."""
    seconds = bench.wish.seconds or _SECONDS
    connections = bench.connections or 200
    environment = bench.rig.environment
    environment["SECKILL_GOVERNOR"] = "off"
    _start(bench)
    warm_up(bench)
    drain = _drain_rate(bench)
    buyers = int(_TIMES * drain * seconds)
    bench.say(f"the consumers drain {drain:.0f}/s: {buyers} buyers in {seconds:.0f} s, no governor")
    off = _half(bench, buyers=buyers, seconds=seconds, connections=connections)

    # What a rehearsal tells its operators: a crowd at the door takes CPU from the consumers.
    besieged = sum(at <= off["ends_s"] for at in off["commits"].committed_s) / seconds
    bench.rig.stop_processes()
    environment |= {"SECKILL_GOVERNOR": "on", "SECKILL_DRAIN_RATE": f"{besieged:.0f}"}
    _start(bench)
    warm_up(bench)
    bench.say(f"the same {buyers} buyers, governed, with the {besieged:.0f}/s drained meanwhile")
    on = _half(bench, buyers=buyers, seconds=seconds, connections=connections)
    changes = [
        {"level": row.level, "before": row.before, "reasons": list(row.reasons)}
        for row in history.recent(50, only_levels=True)
    ]
    late: Commits = on["commits"]
    return Outcome(
        rate_per_s=round(on["accepted"] / seconds, 1),
        p50_ms=late.lateness.percentile_ms(50),
        p95_ms=late.lateness.percentile_ms(95),
        p99_ms=late.lateness.percentile_ms(99),
        errors=_missed(on),
        connections=connections,
        orders=on["found"],
        more={
            "drain_per_s": round(drain, 1),
            "drain_besieged_per_s": round(besieged, 1),
            "offered_per_s": round(buyers / seconds, 1),
            "governed": _shown(on),
            "ungoverned": _shown(off) | {"found": off["found"]},
            "levels": changes[::-1],
            "answers": on["answers"].shown,
            "breaches": on["breaches"],
        },
        latency=late.lateness,
        series={
            f"lag (s), {how}": [(s["at_s"], s["lag_s"]) for s in half["watch"].series]
            for how, half in (("no governor", off), ("governor", on))
        },
        notes=[_line("without", off), _line("with", on)],
    )


def _start(bench: Bench) -> None:
    """Start everything; the order consumers work in small batches."""

    def small(program: Program) -> Program:
        if program.name != "orders":
            return program
        return replace(program, environment={**program.environment, "SECKILL_BATCH_MAX": _BATCH})

    bench.rig.start(port=18_000, adapt=small)
    bench.rig.wait_web()
    bench.rig.wait_workers()


def _drain_rate(bench: Bench) -> float:
    """Let the consumers work off a short crowd; return orders a second."""
    place = make_sale(name="bench drain rate", stock=LIFTED, max_open=LIFTED, max_pending=LIFTED)
    open_sale(place)
    plan = Plan(
        port=bench.rig.port,
        path=place.path,
        connections=100,
        seconds=60,
        users=_PROBE_BUYERS,
        user_prefix="probe-",
        retry=True,
    )
    with bench.load(plan, name="probe") as load:
        load.wait_ready()
        load.go()
        accepted = load.result(timeout_s=90)["accepted"]
    wait_for_orders(bench, place, accepted, timeout_s=120, rest=True)
    return read_commits(place.activity_id, validity_s=place.validity_s).rate()


def _half(bench: Bench, *, buyers: int, seconds: float, connections: int) -> dict[str, Any]:
    """Let the crowd in and wait until nothing moves."""
    place: Sale = make_sale(
        name="bench overload",
        stock=LIFTED,
        validity_s=_VALIDITY_S,
        max_open=LIFTED,
        max_pending=LIFTED,
    )
    open_sale(place)
    plan = Plan(
        port=bench.rig.port,
        path=place.path,
        mode=Mode.CROWD,
        connections=connections,
        seconds=seconds + 10,
        arrival_s=seconds,
        users=buyers,
        clickers=0.0,
        key_reusers=0.0,
        gives_up_after_503=1.0,
    )
    with bench.load(plan) as load, Watch() as watch:
        load.wait_ready(timeout_s=120)
        load.go()
        result = load.result(timeout_s=seconds + 120)
        accepted = load.accepted_ids()
        numbers = wait_for_orders(bench, place, len(accepted), timeout_s=300, rest=True)
    found, breaches = audit(bench, place, accepted)
    commits = read_commits(place.activity_id, validity_s=place.validity_s)
    told = read_commits(place.activity_id, validity_s=place.validity_s, only=set(accepted))
    return {
        "accepted": len(accepted),
        "orders": commits.count,
        "rejected": numbers.rejected,
        # More than were told so: some clients got no answer, and their reservation is sent again
        # by the scanner, later than the others.
        "reserved": max(len(accepted), commits.count + numbers.rejected),
        "in_time": told.in_time(_SLO_MS),
        "commits": commits,
        "ends_s": result["first_sent_epoch_s"] + seconds,
        "codes": result["codes"],
        "answers": sort_answers(result),
        "watch": watch,
        "found": found,
        "breaches": breaches,
    }


def _missed(half: dict[str, Any]) -> int:
    """Count the promises that the governed half broke."""
    kept = (
        half["in_time"] >= 0.999 * half["accepted"],
        half["rejected"] == 0,
        half["watch"].highest("pool_wait_p95_ms") <= 100,
        half["commits"].lateness.percentile_ms(99) <= _SLO_MS,
    )
    answers: Answers = half["answers"]  # without any: a client of a full server may be cut off
    wrong = sum(answers.wrong.values())
    return len(half["breaches"]) + wrong + sum(not one for one in kept)


def _shown(half: dict[str, Any]) -> dict[str, Any]:
    watch: Watch = half["watch"]
    lateness = half["commits"].lateness
    return {
        "accepted": half["accepted"],
        "reserved": half["reserved"],
        "orders": half["orders"],
        "rejected": half["rejected"],
        "in_time_share": round(half["in_time"] / max(1, half["accepted"]), 5),
        "lateness_p99_ms": lateness.percentile_ms(99),
        "lateness_p999_ms": lateness.percentile_ms(99.9),
        "lag_max_s": round(watch.highest("lag_s"), 2),
        "pool_wait_p95_ms": round(watch.highest("pool_wait_p95_ms"), 2),
        "tx_p99_ms": round(watch.highest("tx_p99_ms"), 1),
        "codes": half["codes"],
        "series": watch.series,
    }


def _line(how: str, half: dict[str, Any]) -> str:
    shown = _shown(half)
    return (
        f"{how} governor: {shown['accepted']} accepted, {shown['in_time_share']:.2%} ordered within"
        f" 3 s (p99 of all {shown['reserved']} reserved {shown['lateness_p99_ms']:.0f} ms),"
        f" {shown['rejected']} expired, lag up to"
        f" {shown['lag_max_s']} s, pool wait p95 up to {shown['pool_wait_p95_ms']} ms"
    )
