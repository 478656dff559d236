"""Every fault that the search knows: what it does, how often it is drawn, what it excuses."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import faultpoint


class Excuse(StrEnum):
    """What a fault may honestly cost an accepted buyer (section 1 of docs/reliability.md)."""

    NOTHING = "NOTHING"
    EXPIRY = "EXPIRY"  # no consumer worked for longer than the validity
    LOSS = "LOSS"  # Redis lost data


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultSpec:
    """One kind of fault.

    Args:
        about: for people, what happens.
        weight: how often it is drawn among its like; 0 is drawn by a rule of its own.
        for_s: how long it lasts, from and to; (0, 0) is over at once.
        targets: what it may hit; one is drawn.
        excuse: what it may cost.
        jvm: whether it takes a JVM down (slow: in one seed of five).
    """

    about: str
    weight: int = 1
    for_s: tuple[float, float] = (0.0, 0.0)
    targets: tuple[str, ...] = ("",)
    excuse: Excuse = Excuse.NOTHING
    jvm: bool = False


PROGRAMS: Final = ("orders", "core", "side", "sender", "scanner", "web", "celery")
WIRES: Final = ("postgres", "redis", "rocketmq", "provider")
# Points that are drawn by rules of their own (plan.py).
_APART: Final = ("rebuild.", "replay.", "governor.")


def _points(prefix: str) -> tuple[str, ...]:
    return tuple(sorted(point for point in faultpoint.POINTS if point.startswith(prefix)))


POINTS: Final = tuple(point for point in _points("") if not point.startswith(_APART))
REBUILD_POINTS: Final = _points("rebuild.")
REPLAY_POINTS: Final = _points("replay.")

FAULTS: Final[dict[str, FaultSpec]] = {
    "kill_at_point": FaultSpec(
        about="kill -9 of the next process that passes a named point", weight=8, targets=POINTS
    ),
    "stop_at_point": FaultSpec(
        about="SIGSTOP of the next process that passes a named point, SIGCONT later",
        weight=3,
        for_s=(2.0, 6.0),
        targets=POINTS,
    ),
    "raise_at_point": FaultSpec(
        about="an unknown exception at a named point", weight=2, targets=POINTS
    ),
    "kill_process": FaultSpec(about="kill -9 of a process", weight=3, targets=PROGRAMS),
    "stop_process": FaultSpec(
        about="SIGSTOP of a process, SIGCONT later: leases run out",
        weight=2,
        for_s=(2.0, 8.0),
        targets=PROGRAMS,
    ),
    "soft_restart": FaultSpec(about="SIGTERM, as a deployment does", weight=2, targets=PROGRAMS),
    "mass_restart": FaultSpec(about="kill -9 of all consumers at once"),
    "clock_skew": FaultSpec(
        about="the clock of a process is wrong by half a minute (libfaketime)",
        weight=2,
        for_s=(3.0, 8.0),
        targets=tuple(f"{p}:{o}" for p in PROGRAMS[:6] for o in ("+30", "-30")),
    ),
    "black_hole": FaultSpec(
        about="a connection goes silent, its bytes arrive late",
        weight=3,
        for_s=(1.0, 5.0),
        targets=WIRES,
    ),
    "lost_answers": FaultSpec(
        about="requests arrive, their answers never do; then the connection is cut",
        weight=4,
        for_s=(0.5, 3.0),
        targets=WIRES,
    ),
    "cut": FaultSpec(about="all connections to a server are reset", weight=2, targets=WIRES),
    "slow_network": FaultSpec(
        about="every packet is 50 ms late", weight=1, for_s=(2.0, 5.0), targets=WIRES
    ),
    "postgres_kill": FaultSpec(about="PostgreSQL killed, started again", weight=2),
    "postgres_stop": FaultSpec(about="PostgreSQL stands still", weight=1, for_s=(2.0, 5.0)),
    "backends_terminated": FaultSpec(about="all sessions of the database terminated", weight=2),
    "lock_held": FaultSpec(
        about="a stranger holds the lock of the stock row", weight=2, for_s=(1.0, 6.0)
    ),
    "slow_flush": FaultSpec(
        about="PostgreSQL's WAL flush takes 100 ms more", weight=1, for_s=(3.0, 6.0)
    ),
    "redis_kill": FaultSpec(about="Redis killed, started again with its AOF", weight=2),
    "redis_stop": FaultSpec(about="Redis stands still", weight=1, for_s=(1.0, 4.0)),
    "scripts_flushed": FaultSpec(about="SCRIPT FLUSH: no script is known any more"),
    "provider_kill": FaultSpec(about="payment provider killed, started again", weight=1),
    "provider_fault": FaultSpec(
        about="the payment provider has a bad day",
        weight=3,
        targets=(
            *("create_payment:timeout_after", "create_payment:error_after"),
            *("create_payment:error_before", "create_payment:pending"),
            *("create_payment:late_accept", "create_payment:decline", "refund:timeout_after"),
            *("refund:error_after", "refund:error_before", "webhook:duplicate", "webhook:late"),
            *("webhook:hold", "webhook:drop", "webhook:forge", "query_payment:not_found"),
        ),
    ),
    "redelivery_storm": FaultSpec(
        about="every message of the sale sent again, several times, in any order", weight=3
    ),
    "messages_lost": FaultSpec(
        about="confirmed order messages vanish in the broker", weight=1, for_s=(1.0, 2.0)
    ),
    "topic_read_only": FaultSpec(
        about="the broker refuses writes to a topic: no permission",
        weight=2,
        for_s=(1.0, 4.0),
        targets=("ORDER_CREATE_V1", "ORDER_EVENT_V1", "ORDER_TIMEOUT_V1"),
    ),
    "topic_removed": FaultSpec(
        about="a topic is deleted with its messages, then made again",
        weight=1,
        for_s=(1.0, 3.0),
        targets=("ORDER_CREATE_V1",),
    ),
    # Drawn by rules of their own (plan.py).
    "consumers_late": FaultSpec(
        about="no order consumer works for longer than the validity",
        weight=0,
        for_s=(6.0, 7.0),
        excuse=Excuse.EXPIRY,
    ),
    "redis_older_copy": FaultSpec(
        about="Redis comes back as a copy some seconds old; rebuild",
        weight=0,
        for_s=(3.5, 5.0),
        excuse=Excuse.LOSS,
    ),
    "redis_emptied": FaultSpec(
        about="Redis loses everything; rebuild", weight=0, excuse=Excuse.LOSS
    ),
    "kill_at_rebuild": FaultSpec(
        about="kill -9 of rebuild_gate at a named point; run again",
        weight=0,
        targets=REBUILD_POINTS,
        excuse=Excuse.LOSS,
    ),
    "kill_at_replay": FaultSpec(
        about="kill -9 of the replay worker at a named point", weight=0, targets=REPLAY_POINTS
    ),
    "stop_at_replay": FaultSpec(
        about="SIGSTOP of the replay worker at a named point, SIGCONT later",
        weight=0,
        for_s=(2.0, 4.0),
        targets=REPLAY_POINTS,
    ),
    "raise_at_replay": FaultSpec(
        about="an unknown exception in the replay worker", weight=0, targets=REPLAY_POINTS
    ),
    "kill_at_governor": FaultSpec(
        about="kill -9 of the governor before or after it speaks",
        weight=0,
        targets=_points("governor."),
    ),
    "governor_stopped": FaultSpec(
        about="SIGSTOP of the governor until its last word has ended", weight=0, for_s=(4.0, 6.0)
    ),
    "governor_misled": FaultSpec(
        about="its inputs are nonsense: the broker's page of metrics, the workers' heartbeats",
        weight=0,
        for_s=(6.0, 7.0),
        targets=("page:nothing", "page:garbage", "page:nan", "page:huge", "heartbeats:nonsense"),
    ),
    "governor_spoken_over": FaultSpec(
        about="somebody writes over its decision or its lead, with garbage or extremes",
        weight=0,
        for_s=(1.0, 4.0),
        targets=("garbage", "nested", "closed", "idle", "extreme", "lead"),
    ),
    "broker_kill": FaultSpec(about="broker killed, started again", jvm=True),
    "broker_stop": FaultSpec(about="broker stands still", jvm=True, for_s=(2.0, 6.0)),
    "proxy_kill": FaultSpec(about="proxy killed, started again", jvm=True),
    "proxy_stop": FaultSpec(about="proxy stands still", jvm=True, for_s=(2.0, 6.0)),
    "namesrv_kill": FaultSpec(about="name server killed, started again", jvm=True),
}

# Their numbers say little without what they hit: the results count each target apart.
BY_TARGET: Final = frozenset({"kill_at_point", "provider_fault"})
_DATABASE_GONE: Final = frozenset({"postgres_kill", "postgres_stop", "backends_terminated"})


def may_lose_a_mail(name: str, target: str) -> bool:
    """Whether a fault may leave a mail UNKNOWN: its sender ends in mid-mail, or cannot write it."""
    return (
        name in _DATABASE_GONE
        or target == "postgres"
        or target.partition(":")[0] == "celery"
        or target.startswith("notify.")
    )


NOT_TESTED: Final = {
    "the disk of PostgreSQL, Redis or the broker is full": "would need file systems of their own",
    "a store's own clock is wrong": "one kernel, one clock: only our processes' clocks are turned",
    "PostgreSQL comes back as an older copy": "the mark stops the sale then: tests/protocol",
    "bit rot, torn pages": "the stores' own checksums answer for it",
    "a partition between broker replicas, the loss of a zone": "one machine has one broker",
    "memory runs out (OOM killer)": "for the process it is the kill -9 that is tested",
}
