"""Pages of the outbox for the console."""

import pytest
from django.db import connection

from messaging import browse

pytestmark = pytest.mark.django_db(transaction=True)

DAYS_OF_SENT_ROWS = """
INSERT INTO messaging_outbox (topic, tag, event_id, keys, payload, lane, state, sent_at, attempts)
SELECT 'T', 'X', 'evt_' || n, '', '{}', 1, 1, now(), 1 FROM generate_series(1, 20000) AS n
"""
ONE_GIVEN_UP = """
INSERT INTO messaging_outbox (topic, tag, event_id, keys, payload, lane, state)
VALUES ('T', 'X', 'evt_bad', '', '{}', 1, 2)
"""


def test_what_was_given_up_is_found_without_reading_what_was_sent() -> None:
    blocks: list[int] = []

    def explain(execute, sql, params, many, context):  # type: ignore[no-untyped-def]
        execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", params, many, context)
        plan = context["cursor"].fetchone()[0][0]["Plan"]
        blocks.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
        return execute(sql, params, many, context)

    with connection.cursor() as cursor:
        cursor.execute(ONE_GIVEN_UP)
        cursor.execute(DAYS_OF_SENT_ROWS)
        cursor.execute("ANALYZE messaging_outbox")
    with connection.execute_wrapper(explain):
        assert [line.event_id for line in browse.outbox_page(state="given up")] == ["evt_bad"]
    assert blocks[0] < 20
    assert len(browse.outbox_page(limit=50)) == len(browse.outbox_page(state="sent")) == 50
    assert browse.outbox_page(state="due") == []
