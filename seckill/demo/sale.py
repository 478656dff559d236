"""A sale for a run: made, warmed up and opened through the operators' services."""

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db import connection
from django.utils import timezone

from inventory import operations, selectors
from inventory.activities import NewSku, create_activity
from inventory.gate import gate
from inventory.verbs import gate_state, open_page, pending_stats

# A web process reads its list of sales again at most once a second: until then a new one is a 404.
_LIST_AGE_S: Final = 1.2


@dataclass(frozen=True, kw_only=True)
class Sale:
    """One activity with one SKU, or more that are alike."""

    activity_id: int
    sku_id: int
    stock: int
    validity_s: int
    more_skus: tuple[int, ...] = ()

    @property
    def path(self) -> str:
        """Where buyers post."""
        return self.path_of(self.sku_id)

    def path_of(self, sku_id: int) -> str:
        """Where buyers of this SKU post."""
        return f"/api/v1/activities/{self.activity_id}/skus/{sku_id}/reservations"


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """One look at a sale."""

    orders: int = 0
    unpaid: int = 0
    paid: int = 0
    canceled: int = 0
    rejected: int = 0
    release_due: int = 0
    unsent: int = 0
    left_at_gate: int = 0
    open: int = 0
    pending: int = 0
    lag_s: float = 0.0

    @property
    def at_rest(self) -> bool:
        """Whether nothing moves any more, apart from orders that wait for payment."""
        return not (self.open or self.pending or self.release_due or self.unsent)


_LOOK = """
SELECT (SELECT count(*) FROM orders_order WHERE activity_id = %(a)s),
       (SELECT count(*) FROM orders_order WHERE activity_id = %(a)s
                                            AND status IN ('CREATED', 'PAYING')),
       (SELECT count(*) FROM orders_order WHERE activity_id = %(a)s AND paid_at IS NOT NULL),
       (SELECT count(*) FROM orders_order WHERE activity_id = %(a)s AND status = 'CANCELED'),
       (SELECT count(*) FROM orders_reservation WHERE activity_id = %(a)s
                                                  AND outcome = 'REJECTED'),
       (SELECT count(*) FROM orders_reservation WHERE activity_id = %(a)s
                                                  AND release_state = 'DUE'),
       (SELECT count(*) FROM messaging_outbox WHERE state = 0 AND lane < 2)
"""


def make_sale(
    *,
    name: str,
    stock: int,
    validity_s: int = 300,
    pay_window_s: int = 900,
    max_open: int = 20_000,
    max_pending: int = 2_000,
    minutes: int = 60,
    skus: int = 1,
) -> Sale:
    """Create an activity, load the stock of each of its SKUs into the gate.

    Cost: some statements and one Lua call.
    """
    now = timezone.now()
    activity_id = create_activity(
        name=name,
        starts_at=now - timedelta(seconds=5),
        ends_at=now + timedelta(minutes=minutes),
        validity_s=validity_s,
        pay_window_s=pay_window_s,
        skus=[NewSku(name="Thing", price_cents=4_900, initial_units=stock) for _ in range(skus)],
        max_open=max_open,
        max_pending=max_pending,
    )
    operations.warm_up(activity_id=activity_id)
    time.sleep(_LIST_AGE_S)
    record = selectors.activity_record(activity_id)
    if record is None:
        raise RuntimeError(f"activity {activity_id} is gone")
    return Sale(
        activity_id=activity_id,
        sku_id=record.skus[0].sku_id,
        stock=stock,
        validity_s=validity_s,
        more_skus=tuple(sku.sku_id for sku in record.skus[1:]),
    )


def open_sale(sale: Sale) -> None:
    """Let buyers in."""
    operations.request_open(activity_id=sale.activity_id, reason="demo")


def close_sale(sale: Sale) -> None:
    """Let nobody in any more; what was accepted is honoured."""
    operations.request_close(activity_id=sale.activity_id, reason="demo: the sale is over")


def look(sale: Sale) -> Numbers:
    """Read where the sale stands: one statement, three short Redis calls."""
    with connection.cursor() as cursor:
        cursor.execute(_LOOK, {"a": sale.activity_id})
        orders, unpaid, paid, canceled, rejected, due, unsent = cursor.fetchone()
    state = gate().run(gate_state(activity_id=sale.activity_id, sku_id=sale.sku_id))
    stats = gate().run(pending_stats(activity_id=sale.activity_id))
    oldest = gate().run(
        open_page(
            activity_id=sale.activity_id, min_score_ms=0, max_score_ms=1 << 52, offset=0, limit=1
        )
    )
    lag_ms = stats.redis_now_ms - (oldest[0][1] - sale.validity_s * 1000) if oldest else 0
    return Numbers(
        orders=orders,
        unpaid=unpaid,
        paid=paid,
        canceled=canceled,
        rejected=rejected,
        release_due=due,
        unsent=unsent,
        left_at_gate=state.stock if state else 0,
        open=stats.open,
        pending=stats.pending,
        lag_s=max(lag_ms, 0) / 1000,
    )
