"""The hourly anchor: the ends of all chains that grew since the last one, chained and logged.

Whoever rewrites a whole chain (a superuser can) must rewrite every anchor since, and the log of
another system still tells the old hash.
"""

from typing import Final

import structlog
from django.db import connection, transaction

from dlq_admin.audit.chain import FIRST, anchor_hash, heads_text

log = structlog.get_logger(__name__)

_LOCK: Final = "SELECT pg_advisory_xact_lock(1398097747), clock_timestamp()"
_LAST: Final = "SELECT hash FROM dlq_admin_audit_anchor ORDER BY id DESC LIMIT 1"
# Ends that no anchor tells yet.
_GROWN: Final = """
SELECT h.chain, h.seq, h.hash FROM dlq_admin_audit_head h
 WHERE h.seq > coalesce((
    SELECT (a.heads::jsonb -> h.chain::text ->> 0)::bigint FROM dlq_admin_audit_anchor a
     WHERE a.heads::jsonb ? h.chain::text ORDER BY a.id DESC LIMIT 1), 0)
 ORDER BY h.chain
"""
_INSERT: Final = """
INSERT INTO dlq_admin_audit_anchor (at, heads, prev_hash, hash) VALUES (%s, %s, %s, %s)
"""


def write_anchor() -> str:
    """Anchor what grew; returns the anchor's hash, empty when nothing grew.

    Cost: one look at each chain's end; one row.
    """
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(_LOCK)
        at = cursor.fetchone()[1]
        cursor.execute(_GROWN)
        grown = {chain: (seq, end) for chain, seq, end in cursor.fetchall()}
        if not grown:
            return ""
        cursor.execute(_LAST)
        last = cursor.fetchone()
        prev_hash = last[0] if last else FIRST
        heads = heads_text(grown)
        digest = anchor_hash(prev_hash=prev_hash, at=at, heads=heads)
        cursor.execute(_INSERT, [at, heads, prev_hash, digest])
    log.warning("audit_anchor", hash=digest, chains=len(grown), at=at.isoformat())
    return digest
