"""What every end of an order books: release due, messages, ledger, stock. Cancelled or refunded.

Orders are locked by id before this, stock by SKU inside it: one order of locks for all.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from inventory import stock
from inventory.stock import Return
from messaging import outbox
from messaging.outbox import OutboxMessage
from orders.database import execute
from orders.events import OrderRecord, order_event, release_command

_RELEASE_DUE: Final = """
UPDATE orders_reservation
   SET release_state = 'DUE', release_due_at = %s::timestamptz, restock = %s
 WHERE reservation_id = ANY(%b::text[]) AND release_state = 'NONE'
"""


def end_orders(
    ended: Sequence[OrderRecord], *, event_type: str, restock: bool, now: datetime
) -> None:
    """Book the end of orders whose rows this transaction has just ended.

    Args:
        ended: their rows after the change.
        event_type: ORDER_CANCELED or ORDER_REFUNDED.
        restock: True puts the units on sale again, False withholds them; buyers are freed anyway.
        now: the transaction's clock.

    Raises:
        RuntimeError: an order has no reservation row without a release: it would end twice.

    Cost: five statements for any number; locks the stock rows last.
    """
    reservations = sorted(order.reservation_id for order in ended)
    if execute(_RELEASE_DUE, (now, restock, reservations)) != len(ended):
        raise RuntimeError("an order to end has no reservation row without a release")
    out: list[OutboxMessage] = []
    for order in ended:
        out.append(release_command(order, restock=restock, now=now))
        out.append(order_event(event_type, order, now=now))
    outbox.add(out)
    stock.give_back(
        [
            Return(
                activity_id=order.activity_id,
                sku_id=order.sku_id,
                order_id=order.order_id,
                units=order.quantity,
                restock=restock,
            )
            for order in ended
        ]
    )
