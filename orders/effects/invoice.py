"""Invoices and credit notes, numbered after their order."""

from messaging.topology import CG_INVOICE
from orders.contracts import ORDER_PAID, OrderEvent
from orders.effects.base import Effect, EffectGroup


class Invoice(EffectGroup):
    """Makes one document for each fact."""

    name = CG_INVOICE

    def effect_of(self, event: OrderEvent) -> Effect:
        """Describe the document; printing it is another system's business."""
        paid = event.event_type == ORDER_PAID
        suffix = event.order_id.removeprefix("ord_")
        return Effect(
            value=event.payload.amount_cents if paid else -event.payload.amount_cents,
            unit=event.payload.currency,
            detail={
                "document": "INVOICE" if paid else "CREDIT_NOTE",
                "number": f"{'INV' if paid else 'CRN'}-{suffix}",
                "sku_id": event.sku_id,
                "quantity": event.quantity,
            },
        )


EFFECT = Invoice()
