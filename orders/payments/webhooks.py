"""Webhooks: checked, stored with their raw body, and applied once, in one transaction.

A webhook that comes before its payment is parked and tried again every 10 s; after 24 h it becomes
an item for people. The provider's event id is the idempotence: the same event again changes
nothing. The amount is checked against what we asked for. Source: docs/payments.md.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import structlog
from django.conf import settings
from django.db import transaction

import faultpoint
from messaging.sqlstate import ErrorClass, classify, reason_of
from orders import metrics
from orders.database import begin, fetch
from orders.models import PaymentAttempt, Refund, WebhookEvent
from orders.payments import attempts, drive_refunds, items, providers
from orders.payments.attempts import Settlement
from orders.payments.port import EventKind, ProviderEvent, ProviderUnavailable, WebhookRefused
from orders.payments.states import (
    MISMATCH,
    WEBHOOK_ALLOWED,
    AttemptStatus,
    RefundStatus,
    WebhookStatus,
    sources,
)

log = structlog.get_logger(__name__)

_STORE: Final = """
INSERT INTO orders_webhook
  (provider, event_id, kind, subject, raw_body, status, reason, tries, next_try_at)
VALUES (%s, %s, %s, %s, %s, 'PARKED', '', 0, %s::timestamptz)
ON CONFLICT (provider, event_id) DO NOTHING
RETURNING id
"""


class Receipt(StrEnum):
    """What became of a webhook; all of them are answered with 200."""

    APPLIED = "APPLIED"
    IGNORED = "IGNORED"
    PARKED = "PARKED"
    TICKETED = "TICKETED"
    DUPLICATE = "DUPLICATE"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Verdict:
    status: WebhookStatus
    reason: str = ""


def receive_webhook(*, provider: str, headers: Mapping[str, str], body: bytes) -> Receipt:
    """Check a webhook, store it and apply it.

    Args:
        provider: the name in its address.
        headers: with lower-case names.
        body: the raw bytes that were signed.

    Raises:
        WebhookRefused: no such provider, forged, too old or unreadable: answer 400. Nothing is
            stored.

    Cost: one transaction; a known event costs one statement.
    """
    try:
        event = providers.named(provider).read_webhook(
            headers=headers, body=body, now_s=time.time()
        )
    except ProviderUnavailable:
        metrics.WEBHOOK.labels(result="refused").inc()
        raise WebhookRefused("NO_SUCH_PROVIDER") from None
    except WebhookRefused as refused:
        metrics.WEBHOOK.labels(result="refused").inc()
        log.warning("webhook_refused", provider=provider, reason=refused.reason)
        raise
    with transaction.atomic(durable=True):
        now = begin()
        stored = fetch(_STORE, (provider, event.event_id, event.kind.value, event.key, body, now))
        if not stored:
            receipt = Receipt.DUPLICATE
        else:
            verdict = _apply(provider, event, now)
            _settle(stored[0][0], event, verdict, body=body, now=now)
            receipt = Receipt(verdict.status.value)
        faultpoint.hit("webhook.before_commit")
    metrics.WEBHOOK.labels(result=receipt.value.lower()).inc()
    return receipt


def retry_parked(limit: int) -> int:
    """Apply parked webhooks whose time has come, each in a transaction of its own.

    Returns:
        How many are not parked any more. One that cannot be read, or that fails, keeps its place
        in the line and never holds up the others.
    """
    ids = WebhookEvent.objects.filter(
        status=WebhookStatus.PARKED, next_try_at__lte=begin()
    ).order_by("next_try_at")
    settled = 0
    for pk in ids.values_list("pk", flat=True)[:limit]:
        try:
            settled += _retry(pk)
        except Exception as error:
            if classify(error) in (ErrorClass.TRANSIENT, ErrorClass.CONTENTION):
                raise
            log.error("webhook_failed", webhook=pk, reason=reason_of(error), exc_info=error)
            _put_off(pk)
    return settled


def _put_off(pk: int) -> None:
    wait = timedelta(seconds=settings.SECKILL_WEBHOOK_RETRY_S)
    with transaction.atomic(durable=True):
        WebhookEvent.objects.filter(pk=pk, status=WebhookStatus.PARKED).update(
            next_try_at=begin() + wait
        )


def _retry(pk: int) -> bool:
    with transaction.atomic(durable=True):
        now = begin()
        row = (
            WebhookEvent.objects.select_for_update(skip_locked=True)
            .filter(pk=pk, status=WebhookStatus.PARKED)
            .first()
        )
        if row is None:
            return False
        event = _stored_event(row)
        verdict = _apply(row.provider, event, now)
        age_s = (now - row.received_at).total_seconds()
        if verdict.status is WebhookStatus.PARKED and age_s >= settings.SECKILL_WEBHOOK_TICKET_S:
            verdict = _Verdict(status=WebhookStatus.TICKETED, reason=verdict.reason)
        _settle(row.pk, event, verdict, body=bytes(row.raw_body), now=now)
        faultpoint.hit("webhook.before_commit")
    if verdict.status is not WebhookStatus.PARKED:
        metrics.WEBHOOK.labels(result=verdict.status.value.lower()).inc()
    return verdict.status is not WebhookStatus.PARKED


def _stored_event(row: WebhookEvent) -> ProviderEvent:
    """Read a stored body again; its signature was checked when it came."""
    return providers.named(row.provider).read_event(bytes(row.raw_body))


def _settle(
    pk: int, event: ProviderEvent, verdict: _Verdict, *, body: bytes, now: datetime
) -> None:
    """Write what became of a stored webhook, and its item where a person must look."""
    row = WebhookEvent.objects.filter(pk=pk)
    if verdict.status is WebhookStatus.PARKED:
        tries = row.values_list("tries", flat=True).get()
        wait = timedelta(seconds=settings.SECKILL_WEBHOOK_RETRY_S)
        row.update(next_try_at=now + wait, tries=tries + 1, reason=verdict.reason)
        return
    row.filter(status__in=sources(WEBHOOK_ALLOWED, verdict.status)).update(
        status=verdict.status, reason=verdict.reason, settled_at=now, next_try_at=None
    )
    if verdict.status is WebhookStatus.TICKETED:
        log.error("webhook_ticketed", event_id=event.event_id, reason=verdict.reason)
        items.open_item(
            items.WEBHOOK, event.event_id, reason=verdict.reason, keys=(event.key,), body=body
        )


def _apply(provider: str, event: ProviderEvent, now: datetime) -> _Verdict:
    """Apply an event to the attempt or refund that it names, inside the caller's transaction."""
    match event.kind:
        case EventKind.PAYMENT_SUCCEEDED | EventKind.PAYMENT_FAILED:
            return _apply_payment(provider, event, now)
        case EventKind.REFUND_SUCCEEDED | EventKind.REFUND_FAILED:
            return _apply_refund(provider, event, now)
        case EventKind.OTHER:
            return _Verdict(status=WebhookStatus.IGNORED, reason="OTHER_KIND")


def _apply_payment(provider: str, event: ProviderEvent, now: datetime) -> _Verdict:
    if not PaymentAttempt.objects.filter(pk=event.key, provider=provider).exists():
        return _Verdict(status=WebhookStatus.PARKED, reason="NO_PAYMENT_YET")
    if event.kind is EventKind.PAYMENT_FAILED:
        if attempts.fail(attempt_id=event.key, error_class="DECLINED", now=now):
            return _applied(True)
        if PaymentAttempt.objects.filter(pk=event.key, status=AttemptStatus.SUCCEEDED).exists():
            return _Verdict(status=WebhookStatus.TICKETED, reason="CAPTURE_TAKEN_BACK")
        return _applied(False)
    settlement = attempts.capture(
        attempt_id=event.key,
        provider_payment_id=event.provider_id,
        amount_cents=event.amount_cents,
        currency=event.currency,
        now=now,
    )
    if settlement is Settlement.MISMATCH:
        return _Verdict(status=WebhookStatus.TICKETED, reason=MISMATCH)
    if settlement is not Settlement.ALREADY:
        return _applied(True)
    same = PaymentAttempt.objects.filter(pk=event.key, provider_payment_id=event.provider_id)
    if not same.exists():
        return _Verdict(status=WebhookStatus.TICKETED, reason="SECOND_CAPTURE")
    return _applied(False)


def _apply_refund(provider: str, event: ProviderEvent, now: datetime) -> _Verdict:
    known = Refund.objects.filter(provider=provider, provider_key=event.key).first()
    if known is None:
        return _Verdict(status=WebhookStatus.PARKED, reason="NO_REFUND_YET")
    if known.status == RefundStatus.DUE:  # our row is older than the provider's: send first
        return _Verdict(status=WebhookStatus.PARKED, reason="NOT_SENT_YET")
    if (event.amount_cents, event.currency) != (known.amount_cents, known.currency):
        return _Verdict(status=WebhookStatus.TICKETED, reason=MISMATCH)
    failed = event.kind is EventKind.REFUND_FAILED
    if failed:
        changed = drive_refunds.fail(
            provider=provider, provider_key=event.key, error_class="REFUSED", now=now
        )
    else:
        changed = drive_refunds.succeed(
            provider=provider,
            provider_key=event.key,
            provider_refund_id=event.provider_id,
            now=now,
        )
    if changed:
        return _applied(True)
    known.refresh_from_db()  # only now: a query may have settled it since it was read
    if failed and known.status == RefundStatus.SUCCEEDED:  # the bank sent it back: with nobody
        return _Verdict(status=WebhookStatus.TICKETED, reason="REFUND_CAME_BACK")
    if not failed and known.provider_refund_id != event.provider_id:
        return _Verdict(status=WebhookStatus.TICKETED, reason="SECOND_REFUND")
    return _applied(False)


def _applied(changed: bool) -> _Verdict:
    if changed:
        return _Verdict(status=WebhookStatus.APPLIED)
    return _Verdict(status=WebhookStatus.IGNORED, reason="KNOWN")
