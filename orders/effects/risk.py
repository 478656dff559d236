"""Risk audit: what is odd about a paid order, for people to look at. It decides nothing."""

from typing import Final

from messaging.envelope import parse_instant
from messaging.topology import CG_RISK
from orders.contracts import ORDER_PAID, OrderEvent
from orders.effects.base import Effect, EffectGroup

_LARGE_CENTS: Final = 100_000
_MANY: Final = 5
_INHUMAN_S: Final = 1.0


class Risk(EffectGroup):
    """Scores each paid order: one point a flag."""

    name = CG_RISK

    def effect_of(self, event: OrderEvent) -> Effect | None:
        """List the flags of a paid order."""
        if event.event_type != ORDER_PAID:
            return None
        flags = _flags(event)
        return Effect(value=len(flags), unit="SCORE", detail={"flags": flags})


def _flags(event: OrderEvent) -> list[str]:
    order = event.payload
    flags = []
    if order.amount_cents >= _LARGE_CENTS:
        flags.append("LARGE_AMOUNT")
    if order.quantity >= _MANY:
        flags.append("MANY_UNITS")
    if order.paid_at and order.expires_at and order.paid_at > order.expires_at:
        flags.append("PAID_LATE")
    if order.paid_at:
        took = parse_instant(order.paid_at) - parse_instant(order.created_at)
        if took.total_seconds() < _INHUMAN_S:
            flags.append("PAID_AT_ONCE")
    return flags


EFFECT = Risk()
