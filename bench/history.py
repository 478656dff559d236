"""Years of old sales, filled in by the server itself: what a new sale must not feel."""

from datetime import timedelta
from typing import Final

from django.db import connection, transaction
from django.utils import timezone
from ulid import ULID

from inventory.activities import NewSku, create_activity
from inventory.selectors import activity_record
from messaging.topology import CG_ORDER_CREATE

STEP: Final = 100_000  # rows of each table in one transaction

# ids are ULIDs of yesterday noon: they lie in yesterday's partitions
_ROWS: Final = """
CREATE TEMPORARY TABLE old ON COMMIT DROP AS
SELECT %(noon)s || lpad(n::text, 16, '0') AS ulid, 'old-' || n AS user_id,
       now() - interval '1 day' AS at FROM generate_series(%(first)s::bigint, %(last)s) AS n
"""
_TABLES: Final = (
    """
INSERT INTO orders_order (order_id, reservation_id, request_id, activity_id, sku_id, user_id,
    quantity, amount_cents, currency, status, aggregate_version, created_at, expires_at, paid_at,
    payment_id, cancel_reason, traceparent)
SELECT 'ord_' || ulid, 'rsv_' || ulid, 'req_' || ulid, %(activity)s, %(sku)s, user_id,
    1, 4900, 'EUR', 'PAID', 2, at, at + interval '15 minutes', at, 'pay_' || ulid, '', '' FROM old
""",
    """
INSERT INTO orders_item (order_id, sku_id, quantity, price_cents, currency)
SELECT 'ord_' || ulid, %(sku)s, 1, 4900, 'EUR' FROM old
""",
    """
INSERT INTO orders_reservation (reservation_id, message_id, request_id, order_id, activity_id,
    sku_id, user_id, quantity, outcome, reject_reason, release_state, restock,
    valid_until, created_at)
SELECT 'rsv_' || ulid, 'evt_' || ulid, 'req_' || ulid, 'ord_' || ulid, %(activity)s,
    %(sku)s, user_id, 1, 'ORDERED', '', 'NONE', true,
    at + interval '5 minutes', at FROM old
""",
    """
INSERT INTO messaging_inbox (consumer_group, message_id, outcome, reason, reservation_id,
    order_id, delivery_attempt, created_at)
SELECT %(group)s, 'evt_' || ulid, 'CREATED', '', 'rsv_' || ulid, 'ord_' || ulid, 1, at
FROM old
""",
    """
INSERT INTO inventory_stockledger (activity_id, sku_id, kind, source_id, delta, units, created_at)
SELECT %(activity)s, %(sku)s, 'SALE', 'ord_' || ulid, -1, 1, at FROM old
""",
)


class History:
    """Orders of a sale that is over, with item, reservation, inbox and ledger row each."""

    def __init__(self) -> None:
        now = timezone.now()
        self._activity_id = create_activity(
            name="bench history",
            starts_at=now - timedelta(days=2),
            ends_at=now - timedelta(days=1),
            validity_s=300,
            pay_window_s=900,
            skus=[NewSku(name="Old thing", price_cents=4_900, initial_units=1)],
        )
        record = activity_record(self._activity_id)
        if record is None:
            raise RuntimeError(f"activity {self._activity_id} is gone")
        self._sku_id = record.skus[0].sku_id
        noon = (now - timedelta(days=1)).replace(hour=12)
        self._noon = str(ULID.from_datetime(noon))[:10]
        self.rows = 0

    def grow(self, rows: int) -> None:
        """Fill up to so many orders, then let the planner look, as autovacuum would have."""
        while self.rows < rows:
            last = min(self.rows + STEP, rows)
            self._add(first=self.rows + 1, last=last)
            self.rows = last
        with connection.cursor() as cursor:
            cursor.execute("VACUUM (ANALYZE)")

    def _add(self, *, first: int, last: int) -> None:
        where: dict[str, str | int] = {
            "noon": self._noon,
            "first": first,
            "last": last,
            "activity": self._activity_id,
            "sku": self._sku_id,
            "group": CG_ORDER_CREATE,
        }
        with transaction.atomic(), connection.cursor() as cursor:
            for statement in (_ROWS, *_TABLES):
                cursor.execute(statement, where)
