"""The dry run: one REPEATABLE READ READ ONLY snapshot and the real gate; stored, with an expiry."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import structlog
from django.conf import settings
from django.db import connection, transaction

from dlq_admin import access, permissions
from dlq_admin.audit import record
from dlq_admin.dry_run import dead as dead_messages
from dlq_admin.dry_run.dead import Dead
from dlq_admin.dry_run.examine import Examination, examine, gate_names
from dlq_admin.dry_run.verdict import Verdict
from dlq_admin.errors import NotFound
from dlq_admin.models.replay import DryRun
from dlq_admin.states import Disposition
from inventory.selectors import serving_activities

if TYPE_CHECKING:
    from django.contrib.auth.models import User

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class DryRunRecord:
    """What a replay would do. `versions` are the rows that it was decided from."""

    message_pk: int
    disposition: Disposition
    verdict: Verdict
    reason: str
    needs_extension: bool
    plan_hash: str
    versions: Mapping[str, str]
    created_at: datetime
    expires_at: datetime


@contextmanager
def snapshot() -> Iterator[None]:
    """Run the block in one read-only snapshot."""
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


def look(
    found: Sequence[Dead], *, disposition: Disposition, extension_s: int
) -> dict[int, Examination]:
    """Judge messages in one snapshot; the gate is asked before it. Nothing is written."""
    names = {dead.pk: gate_names(dead, extension_s=extension_s) for dead in found}
    with snapshot():
        return {
            dead.pk: examine(
                dead, disposition=disposition, extension_s=extension_s, names=names[dead.pk]
            )
            for dead in found
        }


def lifetime() -> timedelta:
    """Return how long a plan lives: shorter while a sale is served."""
    seconds = (
        settings.SECKILL_PLAN_SALE_S if serving_activities() else settings.SECKILL_PLAN_QUIET_S
    )
    return timedelta(seconds=seconds)


def dry_run(
    *, message_pk: int, disposition: Disposition, user: "User", extension_s: int = 0
) -> DryRunRecord:
    """Say what a replay of one message would do, and keep it.

    Args:
        message_pk: the dead message.
        disposition: what would be done with it.
        user: needs `dlq_admin.plan_replay`.
        extension_s: seconds of an extension row that the approval would write; 0 for none.

    Raises:
        PermissionDenied: the user may not.
        NotFound: there is no such message.

    Cost: about eight statements and, with an extension, two reads of Redis.
    """
    access.require(user, permissions.PLAN_REPLAY)
    dead = dead_messages.load([message_pk]).get(message_pk)
    if dead is None:
        raise NotFound(f"there is no dead message {message_pk}")
    seen = look([dead], disposition=disposition, extension_s=extension_s)[message_pk]
    with transaction.atomic(durable=True):
        row = DryRun.objects.create(
            message_id=message_pk,
            disposition=disposition.value,
            verdict=seen.judgement.verdict.value,
            reason=seen.judgement.reason,
            snapshot={
                "versions": dict(seen.versions),
                "needs_extension": seen.judgement.needs_extension,
            },
            plan_hash=seen.item_hash,
            created_by=user,
            created_at=seen.now,
            expires_at=seen.now + lifetime(),
        )
        record(
            ticket_id=dead_messages.ticket_of(message_pk),
            kind="DRY_RUN",
            actor=user,
            detail={
                "message_id": dead.message_id,
                "disposition": disposition.value,
                "verdict": seen.judgement.verdict.value,
                "reason": seen.judgement.reason,
                "plan_hash": seen.item_hash,
            },
        )
    if seen.judgement.verdict is Verdict.BREACH:
        log.error(
            "invariant_breach",
            alert="INBOX_CREATED_WITHOUT_ORDER",
            message_id=dead.message_id,
            reservation_id=dead.reservation_id,
        )
    return _record(row)


def latest(*, message_pk: int) -> DryRunRecord | None:
    """Return the newest dry run of a message, expired or not. One statement."""
    row = DryRun.objects.filter(message_id=message_pk).order_by("-pk").first()
    return _record(row) if row else None


def _record(row: Any) -> DryRunRecord:
    return DryRunRecord(
        message_pk=row.message_id,
        disposition=Disposition(row.disposition),
        verdict=Verdict(row.verdict),
        reason=row.reason,
        needs_extension=bool(row.snapshot.get("needs_extension")),
        plan_hash=row.plan_hash,
        versions=row.snapshot.get("versions", {}),
        created_at=row.created_at,
        expires_at=row.expires_at,
    )
