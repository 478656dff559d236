"""Planning: a selection is frozen, each message judged, and the whole bound to one hash.

Late arrivals never join; "all" means all that were there, at most 1 000, with the reasons why the
others are left out.
"""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NotRequired, TypedDict, Unpack

from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.utils import timezone
from ulid import ULID

from dlq_admin import access, permissions
from dlq_admin.audit import record
from dlq_admin.dry_run import dead as dead_messages
from dlq_admin.dry_run.dead import Dead
from dlq_admin.dry_run.examine import Examination
from dlq_admin.dry_run.plan_hash import batch_hash
from dlq_admin.dry_run.run import lifetime, look
from dlq_admin.dry_run.verdict import PLANNABLE
from dlq_admin.errors import NotFound
from dlq_admin.models.message import DlqMessage
from dlq_admin.models.replay import ReplayBatch, ReplayItem, replays_made
from dlq_admin.models.ticket import Ticket
from dlq_admin.replay.editing import EditRefused, edited_difference
from dlq_admin.replay.refusals import PlanRefused
from dlq_admin.states import (
    ITEM_TERMINAL,
    BatchStatus,
    Disposition,
    ItemStatus,
)
from dlq_admin.tickets.messages import open_messages
from dlq_admin.tickets.moves import lock
from dlq_admin.tickets.replaying import require_plannable

if TYPE_CHECKING:
    from django.contrib.auth.models import User

CAP: Final = 1_000
DEFAULT_RATE: Final = 10
_ENDED: Final = sorted(status.value for status in ITEM_TERMINAL)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanResult:
    """A plan that was stored. `excluded` counts what was left out, by reason."""

    batch_id: int
    plan_hash: str
    items: int
    matched: int
    excluded: Mapping[str, int]
    expires_at: datetime


class Wish(TypedDict):
    """How the chosen messages are to be dealt with.

    Args:
        disposition: REPLAY, COMPENSATE or DISCARD (`plan_edited` plans edits).
        user: needs `dlq_admin.plan_replay`.
        reason: for approvers and the audit, not empty.
        idempotency_key: of the form, so that a double submit plans once.
        rate_cap: messages a second at most, 1 to 1 000; part of what is approved.
        canary_size: 1 to 5 messages that must be verified before the rest goes.
        extension_s: lets expired held reservations become orders for so many seconds after the
            approval (an incident lead's); 0 for none.
    """

    disposition: Disposition
    user: "User"
    reason: str
    idempotency_key: NotRequired[str]
    rate_cap: NotRequired[int]
    canary_size: NotRequired[int]
    extension_s: NotRequired[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Request:
    ticket_id: int
    asked: Mapping[str, Any]
    edits: Mapping[int, bytes]
    disposition: Disposition
    user: "User"
    reason: str
    idempotency_key: str = ""
    rate_cap: int = DEFAULT_RATE
    canary_size: int = 1
    extension_s: int = 0


def plan(*, ticket_id: int, message_pks: Sequence[int], **wish: Unpack[Wish]) -> PlanResult:
    """Plan what is to be done with some messages of a ticket.

    Args:
        ticket_id: the ticket that they belong to.
        message_pks: the messages, at most 1 000.
        wish: see `Wish`.

    Raises:
        PermissionDenied: the user may not.
        NotFound: there is no such ticket.
        GuardRefused: the ticket is not ready for it; see `require_plannable`.
        PlanRefused: nothing of it can be done; the text says why.

    Cost: about five statements for each message, one insert; the ticket is locked for the insert.
    """
    if wish["disposition"] is Disposition.REPLAY_EDITED:
        raise PlanRefused("an edit is planned with its body")
    asked = {"kind": "selected", "messages": len(set(message_pks))}
    return _plan(_Request(ticket_id=ticket_id, asked=asked, edits={}, **wish), message_pks)


def plan_all(*, ticket_id: int, **wish: Unpack[Wish]) -> PlanResult:
    """Plan for everything of a ticket that is open now, oldest first, at most 1 000; see `plan`."""
    open_now = list(open_messages(ticket_id).values_list("pk", flat=True)[: CAP + 1])
    matched = open_messages(ticket_id).count() if len(open_now) > CAP else len(open_now)
    asked = {"kind": "all", "messages": matched, "cap": CAP}
    return _plan(_Request(ticket_id=ticket_id, asked=asked, edits={}, **wish), open_now[:CAP])


def plan_edited(
    *,
    ticket_id: int,
    message_pk: int,
    body: bytes,
    user: "User",
    reason: str,
    idempotency_key: str = "",
    extension_s: int = 0,
) -> PlanResult:
    """Plan the replay of one message with another body: unlocked fields only, second level.

    Raises:
        PermissionDenied: the user may not.
        NotFound, GuardRefused: see `plan`.
        PlanRefused: a locked field changes, the schema refuses it, or see `plan`.
    """
    access.require(user, permissions.EDIT_PAYLOAD)
    return _plan(
        _Request(
            ticket_id=ticket_id,
            disposition=Disposition.REPLAY_EDITED,
            user=user,
            reason=reason,
            idempotency_key=idempotency_key,
            rate_cap=1,
            extension_s=extension_s,
            asked={"kind": "edited", "messages": 1},
            edits={message_pk: body},
        ),
        [message_pk],
    )


def _plan(request: _Request, message_pks: Sequence[int]) -> PlanResult:
    access.require(request.user, permissions.PLAN_REPLAY)
    if request.disposition is Disposition.DISCARD:
        access.require(request.user, permissions.DISCARD_MESSAGE)
    _check(request)
    key = request.idempotency_key or uuid.uuid4().hex
    known = ReplayBatch.objects.filter(idempotency_key=key).first()
    if known is not None:
        return _known(known, request)
    ticket = Ticket.objects.filter(pk=request.ticket_id).first()
    if ticket is None:
        raise NotFound(f"there is no ticket {request.ticket_id}")
    require_plannable(ticket, request.disposition)  # asked again under lock: `_store`
    found, excluded = selected(request.ticket_id, message_pks)
    left_over = int(request.asked["messages"]) - len(set(message_pks))
    if left_over > 0:
        excluded["OVER_THE_CAP"] += left_over
    edits = {dead.pk: _edit(dead, request.edits[dead.pk]) for dead in found if dead.pk in
             request.edits}  # fmt: skip
    planned = [edits[dead.pk][0] if dead.pk in edits else dead for dead in found]
    groups = {dead.group for dead in planned}
    if len(groups) > 1:
        raise PlanRefused("the messages are of several consumer groups: plan each apart")
    seen = look(planned, disposition=request.disposition, extension_s=request.extension_s)
    usable, blocked = [], []
    for dead in planned:
        judgement = seen[dead.pk].judgement
        if judgement.verdict in PLANNABLE:
            usable.append(dead)
        else:
            blocked.append(dead)
            excluded[f"{judgement.verdict}: {judgement.reason}"] += 1
    if not usable:
        why = ", ".join(f"{reason} ({count})" for reason, count in sorted(excluded.items()))
        raise PlanRefused(why or "there is nothing to plan")
    try:
        with transaction.atomic(durable=True):
            return _store(request, key, usable, blocked, seen, excluded, edits)
    except IntegrityError as error:
        known = ReplayBatch.objects.filter(idempotency_key=key).first()
        if known is not None:
            return _known(known, request)
        raise PlanRefused("one of the messages is in another open batch") from error


def _check(request: _Request) -> None:
    if not request.reason.strip():
        raise PlanRefused("a reason is needed: approvers read it")
    if not 1 <= request.rate_cap <= 1_000:
        raise PlanRefused("the rate is 1 to 1 000 messages a second")
    if not 1 <= request.canary_size <= 5:
        raise PlanRefused("the canary is 1 to 5 messages")
    if not 0 <= request.extension_s <= 86_400:
        raise PlanRefused("an extension lasts up to 86 400 s")
    if len(request.idempotency_key) > 64:
        raise PlanRefused("the form's key is too long")


def selected(ticket_id: int, message_pks: Sequence[int]) -> tuple[list[Dead], Counter[str]]:
    """Load what may be planned, oldest first, and count the rest by reason.

    Raises:
        PlanRefused: more messages than a batch has.

    Cost: three statements.
    """
    wanted = set(message_pks)
    if len(wanted) > CAP:
        raise PlanRefused(f"a batch has at most {CAP} messages")
    mine = set(open_messages(ticket_id).filter(pk__in=wanted).values_list("pk", flat=True))
    busy = set(
        ReplayItem.objects.filter(message_id__in=mine)
        .exclude(status__in=_ENDED)
        .values_list("message_id", flat=True)
    )
    excluded = Counter[str]()
    if wanted - mine:
        excluded["NOT_OPEN_IN_THIS_TICKET"] = len(wanted - mine)
    if busy:
        excluded["IN_ANOTHER_BATCH"] = len(busy)
    found = dead_messages.load(sorted(mine - busy))
    return [found[pk] for pk in sorted(found)], excluded


def _edit(dead: Dead, body: bytes) -> tuple[Dead, list[dict[str, Any]]]:
    try:
        return dead.with_body(body), edited_difference(original=dead.body, edited=body)
    except EditRefused as error:
        raise PlanRefused(str(error)) from None


def _store(
    request: _Request,
    key: str,
    usable: Sequence[Dead],
    blocked: Sequence[Dead],
    seen: Mapping[int, Examination],
    excluded: Counter[str],
    edits: Mapping[int, tuple[Dead, list[dict[str, Any]]]],
) -> PlanResult:
    # First of all locks: whoever merges, parks, discards or classifies anew holds it while he looks
    # for plans. He sees this one, or this one sees what the ticket became.
    require_plannable(lock(request.ticket_id), request.disposition)
    hashes = [seen[dead.pk].item_hash for dead in usable]
    group = usable[0].group
    digest = batch_hash(
        group=group,
        disposition=request.disposition.value,
        rate_cap=request.rate_cap,
        extension_s=request.extension_s,
        items=hashes,
    )
    expires_at = timezone.now() + lifetime()
    matched = int(request.asked["messages"])
    batch = ReplayBatch.objects.create(
        ticket_id=request.ticket_id,
        consumer_group=group,
        disposition=request.disposition.value,
        reason=request.reason.strip(),
        selection={**request.asked, "excluded": dict(excluded)},
        items_total=len(usable),
        plan_hash=digest,
        rate_cap=request.rate_cap,
        live_rate=request.rate_cap,
        canary_size=request.canary_size,
        extension_s=request.extension_s,
        requested_by=request.user,
        edited_by=request.user,
        idempotency_key=key,
        expires_at=expires_at,
    )
    _store_items(batch, [*usable, *blocked], seen, edits)
    items = ReplayItem.objects.filter(batch=batch)
    items.filter(position__lt=len(usable)).update(status=ItemStatus.PLANNED)
    items.filter(position__gte=len(usable)).update(status=ItemStatus.BLOCKED, ended_at=Now())
    ReplayBatch.objects.filter(pk=batch.pk).update(status=BatchStatus.PLANNED)
    record(
        ticket_id=request.ticket_id,
        kind="REPLAY_PLANNED",
        actor=request.user,
        detail={
            "batch": batch.pk,
            "disposition": request.disposition.value,
            "items": len(usable),
            "excluded": dict(excluded),
            "plan_hash": digest,
            "rate_cap": request.rate_cap,
            "extension_s": request.extension_s,
            "reason": request.reason.strip(),
        },
    )
    return PlanResult(
        batch_id=batch.pk,
        plan_hash=digest,
        items=len(usable),
        matched=matched,
        excluded=dict(excluded),
        expires_at=expires_at,
    )


def _store_items(
    batch: ReplayBatch,
    planned: Sequence[Dead],
    seen: Mapping[int, Examination],
    edits: Mapping[int, tuple[Dead, list[dict[str, Any]]]],
) -> None:
    """Store what is to be done, and behind it what cannot be: the page says why of each."""
    rows = DlqMessage.objects.filter(pk__in=[dead.pk for dead in planned])
    counts = dict(rows.annotate(made=replays_made()).values_list("pk", "made"))
    ReplayItem.objects.bulk_create(
        ReplayItem(
            batch=batch,
            position=position,
            message_id=dead.pk,
            replay_id=f"rpl_{ULID()}",
            verdict=seen[dead.pk].judgement.verdict.value,
            verdict_reason=seen[dead.pk].judgement.reason,
            item_hash=seen[dead.pk].item_hash,
            payload_sha256=dead.sha256,
            body=dead.body if dead.pk in edits else None,
            edit_diff=edits[dead.pk][1] if dead.pk in edits else None,
            needs_extension=seen[dead.pk].judgement.needs_extension,
            replay_count=counts[dead.pk] + 1,
            snapshot={"versions": dict(seen[dead.pk].versions)},
        )
        for position, dead in enumerate(planned)
    )


def _known(batch: ReplayBatch, request: _Request) -> PlanResult:
    if batch.requested_by_id != request.user.pk or batch.ticket_id != request.ticket_id:
        raise PlanRefused("this form was used for another plan")
    return PlanResult(
        batch_id=batch.pk,
        plan_hash=batch.plan_hash,
        items=batch.items_total,
        matched=int(batch.selection.get("messages", batch.items_total)),
        excluded=batch.selection.get("excluded", {}),
        expires_at=batch.expires_at,
    )
