"""`console`: how long each page of the desk for dead messages takes with 100 000 of them."""

import time
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from bench.bench import Bench, Outcome

MESSAGES: Final = 100_000
TICKETS: Final = 200
_ROUNDS: Final = 15
_FILL: Final = (
    """
INSERT INTO dlq_failure_group (consumer_group, error_class, fingerprint, sample, message_count,
        first_seen_at, last_seen_at)
    SELECT 'CG_SECKILL_ORDER_CREATE_PG_V1', 'BENCH', 'f' || n, 'a sample', 0, now(), now()
    FROM generate_series(1, %(tickets)s) n
""",
    """
INSERT INTO dlq_ticket (failure_group_id, title, status, severity, in_sale, owner, message_count,
        last_message_at, opened_at, status_at, cause, disposition, analysis, fix_reference,
        waiting_from, waiting_reason, discard_reason, reopened_count, version)
    SELECT id, 'bench', 'NEW', 'SEV2', false, 'orders', %(messages)s / %(tickets)s, now(), now(),
        now(), '', '', '', '', '', '', '', 0, 1
    FROM dlq_failure_group WHERE error_class = 'BENCH'
""",
    """
INSERT INTO messaging_quarantine (consumer_group, message_id, source, status, topic, tag, keys,
        properties, body, body_sha256, reason, error, delivery_attempt, occurrences,
        reservation_id, user_id, resolution)
    SELECT 'CG_SECKILL_ORDER_CREATE_PG_V1', 'evt_' || lpad(n::text, 26, '0'), 'CONSUMER', 'OPEN',
        'ORDER_CREATE_V1', 'CREATE_ORDER', '', '{}', '\\x7b7d', repeat('0', 64), 'BENCH', '', 1, 1,
        'rsv_' || lpad(n::text, 26, '0'), 'buyer-' || n, ''
    FROM generate_series(1, %(messages)s) n
""",
    """
INSERT INTO dlq_message (consumer_group, message_id, quarantine_id, failure_group_id, ticket_id,
        status, resolution, evidence, source, topic, tag, keys, properties, body, body_sha256,
        error_class, error, reservation_id, order_id, user_id, trace_id, occurrence_count,
        version, first_seen_at, last_seen_at)
    SELECT q.consumer_group, q.message_id, q.id, t.failure_group_id, t.id, 'OPEN', '', '{}',
        'CONSUMER', q.topic, q.tag, '', '{}', q.body, q.body_sha256, 'BENCH', '',
        q.reservation_id, replace(q.reservation_id, 'rsv_', 'ord_'), q.user_id, '', 1, 1,
        now() - q.id * interval '1 second', now()
    FROM messaging_quarantine q
    JOIN (SELECT id, failure_group_id, row_number() OVER () AS n FROM dlq_ticket) t
        ON t.n = q.id %% %(tickets)s + 1
""",
    "ANALYZE",
)


def console(bench: Bench) -> Outcome:
    """Fill the desk and open each of its pages, in this process, as a superuser."""
    bench.say(f"{MESSAGES} dead messages in {TICKETS} tickets")
    with connection.cursor() as cursor:
        for statement in _FILL:
            cursor.execute(statement, {"messages": MESSAGES, "tickets": TICKETS})
        cursor.execute("SELECT ticket_id, message_id FROM dlq_message ORDER BY id DESC LIMIT 1")
        ticket, message = cursor.fetchone()
    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(User.objects.get(username="admin"))
    pages: dict[str, Any] = {}
    times: list[float] = []
    errors = 0
    for name, path in _paths(ticket, message).items():
        took = []
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            errors += client.get(path).status_code != 200
            took.append((time.perf_counter() - began) * 1000)
        took = sorted(took[1:])  # the first compiles templates
        times += took
        pages[name] = {"p50_ms": round(took[len(took) // 2], 1), "max_ms": round(took[-1], 1)}
    times.sort()
    return Outcome(
        rate_per_s=round(1000 * len(times) / sum(times), 1),
        p50_ms=_at(times, 0.5),
        p95_ms=_at(times, 0.95),
        p99_ms=_at(times, 0.99),
        errors=errors,
        connections=1,
        more={"messages": MESSAGES, "pages": pages},
        notes=[
            f"{name}: p50 {one['p50_ms']} ms, max {one['max_ms']}" for name, one in pages.items()
        ],
    )


def _paths(ticket: int, message: str) -> dict[str, str]:
    tabs = ("evidence", "domain", "plan", "approvals", "timeline", "invariants")
    return {
        "inbox": "/admin/dlq/",
        **{tab: f"/admin/dlq/tickets/{ticket}/?tab={tab}" for tab in tabs},
        "approvals queue": "/admin/dlq/approvals/",
        "batches": "/admin/dlq/batches/",
        "quarantine": "/admin/dlq/quarantine/",
        "quarantine, deep": "/admin/dlq/quarantine/?before=1000",
        "outbox": "/admin/dlq/outbox/",
        "inbox rows": "/admin/dlq/inbox-rows/",
        "audit": "/admin/dlq/audit/",
        "search": f"/admin/dlq/search/?q=msg:{message[:-2]}",
        "my permissions": "/admin/dlq/me/",
    }


def _at(times: list[float], share: float) -> float:
    return round(times[min(int(len(times) * share), len(times) - 1)], 1)
