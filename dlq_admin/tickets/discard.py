"""DISCARD: no effect, for good. Two people, and only when no reservation hangs on it.

What is approved is exactly what was asked for: the request's audit event, which nobody can change,
keeps how many messages were open and a hash over their keys. Messages go on dying into the ticket
in between; they need a request of their own.
"""

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction

from dlq_admin import access, permissions
from dlq_admin.contracts import TicketEvent
from dlq_admin.errors import GuardRefused
from dlq_admin.models.audit import AuditEvent
from dlq_admin.models.ticket import Ticket
from dlq_admin.states import Disposition, Resolution, TicketStatus
from dlq_admin.tickets import sla
from dlq_admin.tickets.classify import require_no_plan
from dlq_admin.tickets.messages import open_messages, resolve
from dlq_admin.tickets.moves import clock, lock, move, require_reason, require_status
from dlq_admin.tickets.owed import require_no_glass
from messaging.topology import CG_ORDER_CREATE

if TYPE_CHECKING:
    from django.contrib.auth.models import User

_T = TicketStatus

# Reservations without an outcome that open rows of this ticket's messages hold.
_HELD: Final = """
SELECT count(DISTINCT q.reservation_id) FROM dlq_message m
  JOIN messaging_quarantine q
    ON q.consumer_group = m.consumer_group AND q.message_id = m.message_id AND q.status = 'OPEN'
  LEFT JOIN orders_reservation r ON r.reservation_id = q.reservation_id
 WHERE m.ticket_id = %s AND m.status = 'OPEN' AND m.consumer_group = %s
   AND q.reservation_id IS NOT NULL AND r.reservation_id IS NULL
"""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a discard was asked for: so many open messages, and the hash of their sorted keys."""

    messages: int
    messages_sha256: str


def held_count(ticket_id: int) -> int:
    """Return how many buyers' reservations a ticket's open messages hold. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(_HELD, [ticket_id, CG_ORDER_CREATE])
        return int(cursor.fetchone()[0])


def request_discard(*, ticket_id: int, reason: str, user: "User") -> None:
    """Ask for the messages of a CLASSIFIED ticket to be discarded: DISCARD_PENDING.

    Raises:
        PermissionDenied: the user may not.
        GuardRefused: no reason, another disposition, a buyer's reservation is held, or broken
            glass is not approved.
        StaleTicket: it is not CLASSIFIED.
    """
    access.require(user, permissions.DISCARD_MESSAGE)
    reason = require_reason(reason)
    with transaction.atomic(durable=True):
        ticket = lock(ticket_id)
        require_status(ticket, _T.CLASSIFIED)
        if ticket.disposition != Disposition.DISCARD:
            raise GuardRefused(f"it is classified for {ticket.disposition}: classify it anew first")
        _nothing_held(ticket)
        require_no_plan(ticket)
        require_no_glass(ticket)
        move(
            ticket,
            _T.DISCARD_PENDING,
            kind=TicketEvent.DISCARD_REQUESTED,
            actor=user,
            detail={"reason": reason, **msgspec.structs.asdict(_open_now(ticket.pk))},
            discard_requested_by=user,
            discard_approved_by=None,
            discard_reason=reason,
        )


def approve_discard(*, ticket_id: int, messages_sha256: str, user: "User") -> int:
    """Discard: the second person's word. Messages, quarantine rows and ticket end together.

    Args:
        ticket_id: the ticket.
        messages_sha256: of the request that this person saw, see `asked`.
        user: needs `approve_discard`.

    Returns:
        How many messages were discarded.

    Raises:
        PermissionDenied: the user may not, or is the one who asked.
        GuardRefused: by now a buyer's reservation is held, a plan is under way, broken glass is not
            approved, or the open messages are not those of the request, or it is another request.
        StaleTicket: nobody asks for it.
    """
    access.require(user, permissions.APPROVE_DISCARD)
    with transaction.atomic(durable=True):
        ticket = lock(ticket_id)
        require_status(ticket, _T.DISCARD_PENDING)
        if ticket.discard_requested_by_id == user.pk:
            raise PermissionDenied("another person must approve")
        open_now = open_messages(ticket.pk).only("pk", "consumer_group", "message_id")
        rows = list(open_now.select_for_update())
        now = _asked_for(row.pk for row in rows)
        _require_approvable(ticket, now)
        if messages_sha256 != now.messages_sha256:
            raise GuardRefused("this is another request than the one you saw: look at it again")
        # Exactly the rows that were compared: a message of this ticket that dies again under
        # another failure does not wait for this ticket's lock.
        ended = resolve(
            rows, resolution=Resolution.DISCARDED, evidence={"reason": ticket.discard_reason}
        )
        move(
            ticket,
            _T.DISCARDED,
            kind=TicketEvent.DISCARD_APPROVED,
            actor=user,
            detail=msgspec.structs.asdict(now),
            discard_approved_by=user,
            closed_at=clock(),
            closed_by=user,
        )
        sla.stop(ticket.pk)
    return ended


def asked(ticket_id: int) -> Asked | None:
    """Return what the newest request of a ticket asked for; None when that was not recorded.

    Cost: one statement, by the chain's key.
    """
    events = AuditEvent.objects.filter(chain=ticket_id, kind=TicketEvent.DISCARD_REQUESTED)
    detail = events.order_by("-seq").values_list("detail", flat=True).first()
    try:
        return msgspec.json.decode(detail or "", type=Asked)
    except msgspec.MsgspecError:  # a request from before the set was recorded
        return None


def why_not_approve(ticket_id: int) -> str:
    """Return why a discard that waits cannot be approved by anybody now; empty when it can."""
    ticket = Ticket.objects.get(pk=ticket_id)
    try:
        _require_approvable(ticket, _open_now(ticket_id))
    except GuardRefused as refused:
        return str(refused)
    return ""


def refuse_discard(*, ticket_id: int, reason: str, user: "User") -> None:
    """Refuse a discard: back to CLASSIFIED. Who asked may take it back, too.

    Raises:
        PermissionDenied: the user may neither approve nor did he ask.
        GuardRefused: no reason.
        StaleTicket: nobody asks for it.
    """
    reason = require_reason(reason)
    with transaction.atomic(durable=True):
        ticket = lock(ticket_id)
        own = ticket.discard_requested_by_id == user.pk
        access.require(user, permissions.DISCARD_MESSAGE if own else permissions.APPROVE_DISCARD)
        require_status(ticket, _T.DISCARD_PENDING)
        move(
            ticket,
            _T.CLASSIFIED,
            kind=TicketEvent.DISCARD_REFUSED,
            actor=user,
            detail={"reason": reason},
        )


def _require_approvable(ticket: Ticket, now: Asked) -> None:
    _nothing_held(ticket)
    require_no_plan(ticket)
    require_no_glass(ticket)
    before = asked(ticket.pk)
    if before != now:
        was = f"{before.messages} at the request" if before else "the request does not say which"
        raise GuardRefused(
            f"its open messages have changed ({was}, {now.messages} now): refuse this request,"
            " look at all of them, and ask again"
        )


def _asked_for(pks: Iterable[int]) -> Asked:
    keys = [str(pk) for pk in sorted(pks)]
    digest = hashlib.sha256(",".join(keys).encode())
    return Asked(messages=len(keys), messages_sha256=digest.hexdigest())


def _open_now(ticket_id: int) -> Asked:
    return _asked_for(open_messages(ticket_id).values_list("pk", flat=True))


def _nothing_held(ticket: Ticket) -> None:
    held = held_count(ticket.pk)
    if held:
        raise GuardRefused(
            f"{held} accepted buyers' units hang on these messages: replay or compensate them"
        )
