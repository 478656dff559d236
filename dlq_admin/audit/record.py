"""Writing the audit record: one row inside the transaction that it tells of.

Source: docs/operations/audit.md.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from django.db import connection

if TYPE_CHECKING:
    from django.contrib.auth.models import User

SYSTEM: Final = "system"
NO_TICKET: Final = 0

_encoder: Final = msgspec.json.Encoder(order="sorted")

# Number, hashes and instant are the trigger's.
_INSERT: Final = """
INSERT INTO dlq_admin_audit_event (chain, seq, kind, actor, user_id, detail, prev_hash, hash)
VALUES (%s, 0, %s, %s, %s, %s, '', '')
"""


def record(
    *, ticket_id: int | None, kind: str, actor: "User | str", detail: Mapping[str, Any]
) -> None:
    """Append an event to a ticket's chain, inside the caller's transaction.

    Args:
        ticket_id: whose chain; None for what belongs to no ticket.
        kind: stable code in capitals, such as TICKET_ACKED.
        actor: the user, or a name ("system") when no user acted.
        detail: what happened: ids, states, reasons, hashes; never a message's payload.

    Raises:
        django.db.Error: nothing was recorded; the caller's transaction must not commit.

    Cost: one statement; writers of one ticket wait for each other until their transactions end.
    """
    name, user_id = (actor, None) if isinstance(actor, str) else (actor.get_username(), actor.pk)
    with connection.cursor() as cursor:
        cursor.execute(
            _INSERT,
            [
                NO_TICKET if ticket_id is None else ticket_id,
                kind,
                name,
                user_id,
                # NUL is no text for PostgreSQL.
                _encoder.encode(dict(detail)).decode().replace("\\u0000", "\\ufffd"),
            ],
        )
