"""Stores deaths: message, occurrence, failure group and ticket, in the caller's transaction.

Deaths of one consumer group are stored one transaction after the other (an advisory lock), so that
two drains cannot open two tickets for one cause. Storing the same copy again changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from django.db import connection
from django.db.models import F
from django.db.models.functions import Greatest, Now

from dlq_admin.capture.fingerprint import fingerprint, normalise
from dlq_admin.capture.records import Death
from dlq_admin.capture.settled import close_settled
from dlq_admin.models.message import DlqMessage, DlqOccurrence, FailureGroup
from dlq_admin.states import MessageStatus
from dlq_admin.tickets.attach import attach
from messaging.facts import printable
from messaging.selectors import workers

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 20251))"

# The quarantine row that stands for each message: the newest open one.
_ROWS: Final = """
SELECT DISTINCT ON (message_id) message_id, id FROM messaging_quarantine
 WHERE consumer_group = %s AND message_id = ANY(%b::text[]) AND status = 'OPEN'
 ORDER BY message_id, id DESC
"""


def lock_group(group: str) -> None:
    """Wait for other transactions that store deaths of this group."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [group])


def unknown(group: str, deaths: Sequence[Death]) -> list[Death]:
    """Return the deaths that are not stored yet, each copy once. After `lock_group`.

    Cost: one statement.
    """
    known = set(
        DlqOccurrence.objects.filter(
            message__consumer_group=group,
            message__message_id__in=[death.message_id for death in deaths],
        ).values_list("message__message_id", "source", "origin")
    )
    new: dict[tuple[str, str, str], Death] = {}
    for death in deaths:
        key = (death.message_id, death.source, death.origin)
        if key not in known:
            new.setdefault(key, death)
    return list(new.values())


def store_deaths(group: str, deaths: Sequence[Death]) -> int:
    """Store new deaths of one group; their quarantine rows were written in this transaction.

    Args:
        group: registry name.
        deaths: from `unknown`.

    Returns:
        How many messages are open now that were not before.

    Cost: about ten statements for any number, and three for each new cause.
    """
    if not deaths:
        return 0
    causes = _causes(group, deaths)
    rows = _messages(group, deaths, causes)
    _occurrences(group, deaths, rows)
    settled = close_settled(list(rows.values()))
    waiting = [row for row in rows.values() if row.pk not in settled]
    attach(waiting)
    return len(waiting)


def _causes(group: str, deaths: Sequence[Death]) -> list[FailureGroup]:
    """Return what killed each, in their order."""
    causes: list[FailureGroup] = []
    found: dict[tuple[str, str], FailureGroup] = {}
    for death in deaths:
        key = (death.error_class, fingerprint(error_class=death.error_class, error=death.error))
        if key not in found:
            found[key], _ = FailureGroup.objects.get_or_create(
                consumer_group=group,
                error_class=key[0],
                fingerprint=key[1],
                defaults={"sample": normalise(death.error)},
            )
        causes.append(found[key])
    return causes


def _messages(
    group: str, deaths: Sequence[Death], causes: Sequence[FailureGroup]
) -> dict[str, DlqMessage]:
    """Make or touch the message rows; returns them by message id, as they are now."""
    ids = sorted({death.message_id for death in deaths})
    with connection.cursor() as cursor:
        cursor.execute(_ROWS, [group, ids])
        quarantine_ids = dict(cursor.fetchall())
    mine = DlqMessage.objects.filter(consumer_group=group, message_id__in=ids)
    before = {row.message_id: row for row in mine.only("message_id")}
    new: dict[str, DlqMessage] = {}
    for death, cause in zip(deaths, causes, strict=True):
        if death.message_id in before or death.message_id in new:
            again = {
                "status": MessageStatus.OPEN,
                "resolution": "",
                "evidence": {},
                "closed_at": None,
                "quarantine_id": quarantine_ids[death.message_id],
                "failure_group_id": cause.pk,
                "error_class": death.error_class,
                "error": death.error[:2000],
                "last_seen_at": Now(),
                "occurrence_count": F("occurrence_count") + 1,
                "version": F("version") + 1,
            }
            if death.message_id in before:
                DlqMessage.objects.filter(pk=before[death.message_id].pk).update(**again)
            else:
                new[death.message_id].occurrence_count += 1
            continue
        new[death.message_id] = _row(death, cause, quarantine_ids[death.message_id])
    DlqMessage.objects.bulk_create(new.values(), batch_size=200)
    for cause in {cause.pk: cause for cause in causes}.values():
        fresh = sum(row.failure_group_id == cause.pk for row in new.values())
        FailureGroup.objects.filter(pk=cause.pk).update(
            message_count=F("message_count") + fresh, last_seen_at=Greatest("last_seen_at", Now())
        )
    return {row.message_id: row for row in mine.select_related("failure_group")}


def _row(death: Death, cause: FailureGroup, quarantine_id: int) -> DlqMessage:
    facts = death.facts
    return DlqMessage(
        consumer_group=death.group,
        message_id=death.message_id,
        quarantine_id=quarantine_id,
        failure_group=cause,
        source=death.source,
        topic=printable(death.topic)[:120],
        tag=printable(death.tag)[:64],
        keys=printable(death.keys),
        properties={printable(k): printable(v) for k, v in death.properties.items()},
        body=death.body,
        body_sha256=death.sha256,
        error_class=death.error_class,
        error=death.error[:2000],
        reservation_id=facts.reservation_id or "",
        order_id=death.order_id,
        user_id=facts.user_id or "",
        activity_id=facts.activity_id,
        sku_id=facts.sku_id,
        quantity=facts.quantity,
        valid_until=facts.valid_until,
        trace_id=death.trace_id,
    )


def _occurrences(group: str, deaths: Sequence[Death], rows: Mapping[str, DlqMessage]) -> None:
    build = max((w.build for w in workers() if w.group == group), default=None)
    DlqOccurrence.objects.bulk_create(
        [
            DlqOccurrence(
                message=rows[death.message_id],
                source=death.source,
                origin=death.origin[:160],
                broker_message_id=death.broker_message_id[:64],
                queue_id=death.queue_id,
                queue_offset=death.queue_offset,
                delivery_attempt=death.delivery_attempt,
                error_class=death.error_class,
                error=death.error[:2000],
                trace_id=death.trace_id,
                build=build,
                replay_id=death.replay_id,
                died_at=death.died_at,
            )
            for death in deaths
        ],
        batch_size=200,
    )
