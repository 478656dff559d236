"""Can a loop work again? Asked after an outage, along the path that its work takes.

A database that reads but cannot write (full disk, demoted primary, locked tables) answers SELECT 1:
receiving again at that word would burn a delivery attempt of every message.
"""

from typing import Final, Protocol, runtime_checkable

from django.conf import settings
from django.db import close_old_connections, connection, transaction
from ulid import ULID

GROUP: Final = "PROBE"  # stands in the group's place; nobody ever sees the row

_LIMITS: Final = """
SELECT set_config('lock_timeout', %s, true), set_config('statement_timeout', %s, true)
"""
# As wide as a batch and hardly to be compressed: it needs new pages, which a full disk has not.
_WRITE: Final = """
INSERT INTO messaging_inbox (consumer_group, message_id, outcome, reason)
SELECT %s, %s, 'APPLIED', string_agg(gen_random_uuid()::text, '') FROM generate_series(1, 500)
"""


@runtime_checkable
class Probing(Protocol):
    """A handler that needs more than PostgreSQL."""

    def probe(self) -> None:
        """Return when its stores answer; raise while they do not."""
        ...


def stores_work(handler: object) -> bool:
    """Tell whether PostgreSQL takes writes and what else the handler needs answers.

    Cost: one transaction that writes 18 kB into today's inbox and is rolled back.
    """
    try:
        close_old_connections()
        _write_and_roll_back()
        if isinstance(handler, Probing):
            handler.probe()
    except Exception:
        connection.close()
        return False
    return True


def _write_and_roll_back() -> None:
    limits = (settings.SECKILL_LOCK_TIMEOUT_MS, settings.SECKILL_STATEMENT_TIMEOUT_MS)
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(_LIMITS, [f"{ms}ms" for ms in limits])
        cursor.execute(_WRITE, [GROUP, f"evt_{ULID()}"])
        transaction.set_rollback(True)
