"""Settlement: one ledger entry for money kept, one for money given back."""

from messaging.topology import CG_SETTLEMENT
from orders.contracts import ORDER_PAID, OrderEvent
from orders.effects.base import Effect, EffectGroup


class Settlement(EffectGroup):
    """Books each paid order, and takes back what is refunded."""

    name = CG_SETTLEMENT

    def effect_of(self, event: OrderEvent) -> Effect:
        """Book the order's amount."""
        amount = event.payload.amount_cents
        return Effect(
            value=amount if event.event_type == ORDER_PAID else -amount,
            unit=event.payload.currency,
            detail={"payment_id": event.payload.payment_id},
        )


EFFECT = Settlement()
