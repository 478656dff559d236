"""What a governor reads of a sale at the gate, once a second: one round trip, nothing written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inventory import keys
from inventory.call import Call
from inventory.reads import flat_pairs, time_ms


@dataclass(frozen=True, kw_only=True, slots=True)
class SalePressure:
    """How much of a sale is under way.

    `overdue_s` is how long the oldest uncertain send waits for its next try beyond its time;
    `expiring` counts open reservations with under half of their validity left at `now_ms`, but
    not the held ones: a person decides on those, no consumer works them off;
    `accepted` counts answers 202 since the sale's counters began.
    """

    open: int
    pending: int
    overdue_s: float
    expiring: int
    accepted: int
    now_ms: int


def sale_pressure(
    *, activity_id: int, validity_ms: int, now_ms: int, held: Sequence[str] = ()
) -> Call[SalePressure]:
    """Read one sale.

    Args:
        activity_id: the sale.
        validity_ms: of its reservations.
        now_ms: Redis TIME of a moment ago, epoch ms.
        held: ids of its reservations that an open quarantine row holds.

    Cost: constant, and a score for each held reservation.
    """
    half_ms = now_ms + validity_ms // 2

    def parse(raw: Any) -> SalePressure:
        time, pending, oldest, waiting, expiring, answers, *scores = raw
        now = time_ms(time)
        due = flat_pairs(oldest)
        return SalePressure(
            open=int(waiting),
            pending=int(pending),
            overdue_s=max(0.0, (now - float(due[0][1])) / 1000) if due else 0.0,
            # By its score: one that is fresh, or not open any more, was not counted. A rebuild
            # may put one back between the two commands: hence never below 0.
            expiring=max(0, int(expiring) - _until(half_ms, scores[0] if scores else ())),
            accepted=sum(int(count or 0) for count in answers),
            now_ms=now,
        )

    pending, waiting = keys.mq_pending(activity_id), keys.open_reservations(activity_id)
    return Call(
        commands=(
            ("TIME",),
            ("ZCARD", pending),
            ("ZRANGE", pending, 0, 0, "WITHSCORES"),
            ("ZCARD", waiting),
            ("ZCOUNT", waiting, "-inf", half_ms),
            ("HMGET", keys.answers(activity_id), "QUEUED", "PENDING"),
            *((("ZMSCORE", waiting, *held),) if held else ()),
        ),
        parse=parse,
    )


def _until(instant_ms: int, scores: Sequence[Any]) -> int:
    """Count the scores up to an instant; None is one that is not there."""
    return sum(score is not None and float(score) <= instant_ms for score in scores)
