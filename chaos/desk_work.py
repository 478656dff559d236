"""One pass of the desk, in the operators' process: each ticket goes on, by whose step it is.

Through the console's services, with its people: olga works, anton and lea approve. Only tickets of
what the search itself let die are touched; any other stays open, and is a breach.
"""

import logging
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from chaos.desk import PLANNED
from chaos.orders_process import BUG_FILE
from dlq_admin.dry_run.run import dry_run
from dlq_admin.errors import DlqAdminError
from dlq_admin.models.message import DlqMessage
from dlq_admin.models.replay import ReplayBatch
from dlq_admin.models.ticket import OPEN, Ticket
from dlq_admin.replay.approval import approve, request_approval
from dlq_admin.replay.control import abort
from dlq_admin.replay.plan import plan_all, plan_edited
from dlq_admin.replay.prove import check_now
from dlq_admin.replay.refusals import PlanRefused
from dlq_admin.states import (
    BATCH_ENDED,
    BatchStatus,
    Cause,
    Disposition,
    TicketStatus,
)
from dlq_admin.tickets.classify import begin_fix, classify, make_ready
from dlq_admin.tickets.close import close
from dlq_admin.tickets.messages import open_messages
from dlq_admin.tickets.triage import acknowledge, resume
from messaging.envelope import PRODUCER
from orders.errors import TicketRefused
from seckill.demo.desk import seed_people

log = logging.getLogger(__name__)

BUG, CUT_OFF, NEWER_SCHEMA = PLANNED
_REASON: Final = "fault search"
_BUILD: Final = 1
_AT_ONCE: Final = 4
_EXTENSION_S: Final = 600
_ENDED: Final = sorted(status.value for status in BATCH_ENDED)
_T = TicketStatus
_CAUSES: Final = {
    BUG: Cause.HANDLER_BUG,
    CUT_OFF: Cause.POISON_FORMAT,
    NEWER_SCHEMA: Cause.POISON_FORMAT,
}
_people: dict[str, tuple[User, str]] = {}


def work(*, replay: bool) -> str:
    """Go on with each ticket; a step that is refused is tried again in the next pass.

    Args:
        replay: whether everything that can be replayed is; else one ticket of three is compensated.
    """
    if not _people:
        for person in seed_people():
            _people[person.name] = (User.objects.get(username=person.name), person.password)
    tickets = list(
        Ticket.objects.filter(OPEN, failure_group__error_class__in=PLANNED)
        .select_related("failure_group")
        .order_by("pk")
    )
    for ticket in tickets:
        try:
            _go_on(ticket, replay=replay)
        except (DlqAdminError, TicketRefused, PermissionDenied) as refused:
            log.warning("DLQ-%s is %s: %s", ticket.pk, ticket.status, refused)
    return f"{len(tickets)} open"


def _go_on(ticket: Ticket, *, replay: bool) -> None:
    """Take the next steps at a ticket, until others have to do theirs."""
    for _ in range(_AT_ONCE):
        if ticket.status == _T.ACKED:
            _classify(ticket, replay=replay)
        elif ticket.status in _STEPS:
            _STEPS[TicketStatus(ticket.status)](ticket)
        else:
            return
        ticket.refresh_from_db()


def _user(name: str) -> User:
    return _people[name][0]


def _acknowledge(ticket: Ticket) -> None:
    acknowledge(ticket_id=ticket.pk, user=_user("olga"))


def _classify(ticket: Ticket, *, replay: bool) -> None:
    classify(
        ticket_id=ticket.pk,
        cause=_CAUSES[ticket.failure_group.error_class],
        disposition=_wish(ticket, replay=replay),
        analysis=_REASON,
        user=_user("olga"),
    )


def _wish(ticket: Ticket, *, replay: bool) -> Disposition:
    """What cannot be read is compensated; else two tickets of three are replayed, or all."""
    died_of = ticket.failure_group.error_class
    third = (ticket.pk + ticket.reopened_count) % 3 == 0
    if died_of == CUT_OFF or (third and not replay):
        return Disposition.COMPENSATE
    return Disposition.REPLAY if died_of == BUG else Disposition.REPLAY_EDITED


def _classified(ticket: Ticket) -> None:
    if ticket.disposition == Disposition.COMPENSATE:
        make_ready(ticket_id=ticket.pk, user=_user("olga"))
    else:
        begin_fix(ticket_id=ticket.pk, user=_user("olga"))


def _fixed(ticket: Ticket) -> None:
    """Say that it is fixed: when it is, but for a first try of somebody who is hasty."""
    hasty = ticket.pk % 2 == 0 and not ReplayBatch.objects.filter(ticket_id=ticket.pk).exists()
    if Path(os.environ[BUG_FILE]).exists() and not hasty:
        return
    if not _open(ticket):  # the rest settled by itself: nothing is left to be replayed
        log.warning("DLQ-%s is %s and has no open message", ticket.pk, ticket.status)
    make_ready(ticket_id=ticket.pk, user=_user("olga"), fix_reference=_REASON, fix_build=_BUILD)


def _replay(ticket: Ticket) -> None:
    """Drive the ticket's batch, or plan one."""
    batch = (
        ReplayBatch.objects.filter(ticket_id=ticket.pk)
        .exclude(status__in=_ENDED)
        .order_by("-pk")
        .first()
    )
    if batch is None:
        if ticket.status != _T.REPLAYING:
            _plan(ticket)
    elif batch.status == BatchStatus.PLANNED:
        request_approval(batch_id=batch.pk, user=_user("olga"))
    elif batch.status == BatchStatus.PENDING_APPROVAL:
        _approve(batch)
    elif batch.status == BatchStatus.PAUSED:
        abort(batch_id=batch.pk, user=_user("lea"), reason=_REASON)


def _plan(ticket: Ticket) -> None:
    open_now = _open(ticket)
    disposition = Disposition(ticket.disposition)
    replays = disposition in (Disposition.REPLAY, Disposition.REPLAY_EDITED)
    extension_s = _EXTENSION_S if replays and any(map(_expired, open_now)) else 0
    for dead in open_now[:1]:
        dry_run(
            message_pk=dead.pk,
            disposition=disposition,
            user=_user("olga"),
            extension_s=extension_s,
        )
    try:
        if disposition is Disposition.REPLAY_EDITED and open_now:
            plan_edited(
                ticket_id=ticket.pk,
                message_pk=open_now[0].pk,
                body=_as_of_today(bytes(open_now[0].body)),
                user=_user("olga"),
                reason=_REASON,
                extension_s=extension_s,
            )
        else:
            plan_all(
                ticket_id=ticket.pk,
                disposition=disposition,
                user=_user("olga"),
                reason=_REASON,
                extension_s=extension_s,
            )
    except PlanRefused as refused:
        if not replays:
            raise
        log.warning("DLQ-%s is compensated instead: %s", ticket.pk, refused)
        plan_all(
            ticket_id=ticket.pk,
            disposition=Disposition.COMPENSATE,
            user=_user("olga"),
            reason=_REASON,
        )


def _approve(batch: ReplayBatch) -> None:
    """Let anton approve, and lea when a second person or an incident lead is needed."""
    for name in ("anton", "lea"):
        user, password = _people[name]
        if batch.approvals.filter(approver=user).exists():
            continue
        status = approve(batch_id=batch.pk, plan_hash=batch.plan_hash, password=password, user=user)
        if status is BatchStatus.APPROVED:
            return


def _verify(ticket: Ticket) -> None:
    if _open(ticket):
        _replay(ticket)
        return
    check_now(ticket_id=ticket.pk, user=_user("olga"))
    close(ticket_id=ticket.pk, user=_user("olga"))


def _take_up(ticket: Ticket) -> None:
    resume(ticket_id=ticket.pk, reason=_REASON, user=_user("olga"))


def _open(ticket: Ticket) -> list[DlqMessage]:
    return list(open_messages(ticket.pk))


def _expired(dead: DlqMessage) -> bool:
    ends: datetime | None = dead.valid_until
    return ends is None or ends <= timezone.now()


def _as_of_today(body: bytes) -> bytes:
    """Undo what `newer_schema` did."""
    fields: dict[str, Any] = msgspec.json.decode(body)
    return msgspec.json.encode(fields | {"schema_version": 1, "producer": PRODUCER})


_STEPS: Final[dict[TicketStatus, Callable[[Ticket], None]]] = {
    _T.NEW: _acknowledge,
    _T.REOPENED: _acknowledge,
    _T.CLASSIFIED: _classified,
    _T.FIXING: _fixed,
    _T.READY: _replay,
    _T.REPLAYING: _replay,
    _T.VERIFYING: _verify,
    _T.WAITING: _take_up,
}
