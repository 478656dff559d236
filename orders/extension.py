"""Extension rows: the only way past valid_until, for a held reservation whose replay is approved.

Rule `extension-held`: `buyers[user]`, at a gate that is neither lost nor rebuilding, must name the
reservation. A rebuild after a loss counted without whatever it does not find there: reviving such a
reservation would sell its unit twice.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog
from django.core.exceptions import PermissionDenied
from django.db import transaction

from inventory import verbs
from inventory.gate import gate
from inventory.gate_status import is_lost
from inventory.selectors import activity_record
from inventory.states import GateStatus
from messaging.quarantine import HeldReservation
from orders.database import begin, execute
from orders.errors import TicketRefused
from orders.held import is_complete, lock_held

if TYPE_CHECKING:
    from django.contrib.auth.models import User

log = structlog.get_logger(__name__)

PERMISSION: Final = "orders.grant_extension"
MAX_SECONDS: Final = 86_400

_GRANT: Final = """
INSERT INTO orders_extension (reservation_id, valid_until, reason, granted_by)
VALUES (%s, %s, %s, %s)
ON CONFLICT (reservation_id) DO UPDATE
   SET valid_until = greatest(orders_extension.valid_until, excluded.valid_until),
       reason = excluded.reason, granted_by = excluded.granted_by, granted_at = clock_timestamp()
"""


def grant_extension(*, reservation_id: str, seconds: int, reason: str, user: "User") -> datetime:
    """Let a held reservation become an order past its valid_until, for so many seconds from now.

    Args:
        reservation_id: the held reservation.
        seconds: 1 to 86 400.
        reason: for the audit, not empty.
        user: needs `orders.grant_extension`.

    Returns:
        Until when, on the database's clock.

    Raises:
        PermissionDenied: the user may not.
        TicketRefused: it is not held, or the gate does not name it as its buyer's.
        GateUnavailable: Redis does not answer; nothing was written.

    Cost: two reads of Redis, then one short transaction.
    """
    if not user.has_perm(PERMISSION):
        raise PermissionDenied(PERMISSION)
    if not reason.strip():
        raise TicketRefused("a reason is needed: it is the audit record")
    if not 1 <= seconds <= MAX_SECONDS:
        raise TicketRefused(f"an extension lasts 1 to {MAX_SECONDS} s")
    require_at_gate(reservation_id)
    with transaction.atomic(durable=True):
        valid_until = write_extension(
            reservation_id=reservation_id,
            seconds=seconds,
            reason=reason.strip(),
            granted_by=user.get_username(),
            now=begin(),
        )
    log.warning(
        "extension_granted",
        reservation_id=reservation_id,
        operator=user.get_username(),
        reason=reason,
        valid_until=valid_until.isoformat(),
    )
    return valid_until


def require_at_gate(reservation_id: str) -> None:
    """Refuse unless the gate names a held reservation as its buyer's; outside any transaction.

    Raises:
        TicketRefused: it is not held, or the gate does not name it.
        GateUnavailable: Redis does not answer.
    """
    _require_at_gate(_held(reservation_id))


def write_extension(
    *, reservation_id: str, seconds: int, reason: str, granted_by: str, now: datetime
) -> datetime:
    """Write the row inside the caller's transaction, after `require_at_gate`; returns until when.

    Raises:
        TicketRefused: it is not held any more.
    """
    # A rebuild that came between the look at the gate and this row kept what is held still.
    _held(reservation_id)
    valid_until = now + timedelta(seconds=seconds)
    execute(_GRANT, (reservation_id, valid_until, reason, granted_by))
    return valid_until


def _held(reservation_id: str) -> HeldReservation:
    held = lock_held(reservation_id)
    if held is None or not is_complete(held):
        raise TicketRefused(f"{reservation_id} is not held by a ticket that tells whose it is")
    return held


def _require_at_gate(held: HeldReservation) -> None:
    activity_id, sku_id = held.activity_id or 0, held.sku_id or 0
    record = activity_record(activity_id)
    if record is not None and (record.rebuild_unfinished or record.loss_noted_at):
        raise TicketRefused(f"the gate of activity {activity_id} is being rebuilt")
    state = gate().run(verbs.gate_state(activity_id=activity_id, sku_id=sku_id))
    if record is None or state is None or is_lost(record, state):
        raise TicketRefused(f"the gate of activity {activity_id} is lost: rebuild it first")
    if state.status == GateStatus.REBUILDING or state.rebuild_run:
        raise TicketRefused(f"the gate of activity {activity_id} is being rebuilt")
    holders = gate().run(verbs.holders(activity_id=activity_id, sku_id=sku_id))
    if holders.get(held.user_id or "") != held.reservation_id:
        raise TicketRefused(
            f"the gate does not know {held.reservation_id} as its buyer's any more: its units were"
            " given to others; COMPENSATE is what is left"
        )
