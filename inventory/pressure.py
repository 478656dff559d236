"""What a governor reads of a sale at the gate, once a second: one round trip, constant cost."""

from dataclasses import dataclass
from typing import Any

from inventory import keys
from inventory.call import Call
from inventory.reads import flat_pairs, time_ms


@dataclass(frozen=True, kw_only=True, slots=True)
class SalePressure:
    """How much of a sale is under way.

    `overdue_s` is how long the oldest uncertain send waits for its next try beyond its time;
    `expiring` counts open reservations with under half of their validity left at `now_ms`;
    `accepted` counts answers 202 since the sale's counters began.
    """

    open: int
    pending: int
    overdue_s: float
    expiring: int
    accepted: int
    now_ms: int


def sale_pressure(*, activity_id: int, validity_ms: int, now_ms: int) -> Call[SalePressure]:
    """Read one sale.

    Args:
        activity_id: the sale.
        validity_ms: of its reservations.
        now_ms: Redis TIME of a moment ago, epoch ms.
    """

    def parse(raw: Any) -> SalePressure:
        time, pending, oldest, waiting, expiring, answers = raw
        now = time_ms(time)
        due = flat_pairs(oldest)
        return SalePressure(
            open=int(waiting),
            pending=int(pending),
            overdue_s=max(0.0, (now - float(due[0][1])) / 1000) if due else 0.0,
            expiring=int(expiring),
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
            ("ZCOUNT", waiting, "-inf", now_ms + validity_ms // 2),
            ("HMGET", keys.answers(activity_id), "QUEUED", "PENDING"),
        ),
        parse=parse,
    )
