"""Points: one for each whole unit of currency; a refund takes them back."""

from messaging.topology import CG_POINTS
from orders.contracts import ORDER_PAID, OrderEvent
from orders.effects.base import Effect, EffectGroup


class Points(EffectGroup):
    """Grants points. Another rule is another `rule_version`."""

    name = CG_POINTS

    def effect_of(self, event: OrderEvent) -> Effect | None:
        """Grant or take back."""
        points = event.payload.amount_cents // 100
        if not points:
            return None
        return Effect(value=points if event.event_type == ORDER_PAID else -points, unit="POINT")


EFFECT = Points()
