"""The look for lost mails, every few seconds, does not read the queue."""

import pytest
from django.db import connection

from orders import notifications
from tests.fixtures.sql import execute

pytestmark = pytest.mark.django_db

_QUEUE = """
INSERT INTO orders_notification
  (source_type, source_id, channel, activity_id, user_id, amount_cents, currency, status, tries,
   error)
SELECT 'ORDER_PAID', 'ord_' || n, 'mail', 1, 'u' || n, 100, 'EUR', 'PENDING', 0, ''
  FROM generate_series(1, 2000) AS n
"""


def test_it_reads_only_those_that_are_being_sent():
    execute(_QUEUE)
    execute("ANALYZE orders_notification")

    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT TEXT) {notifications._LOST}", (60,))
        plan = "\n".join(line for (line,) in cursor.fetchall())

    assert "orders_notification_lost_idx" in plan
