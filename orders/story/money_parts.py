"""The parts of a story that are about money."""

from orders.amounts import money
from orders.models import PaymentAttempt, Refund, WebhookEvent
from orders.story.records import Entry, Part, Tone, tone_of


def attempts_part(order_id: str) -> Part:
    """Attempts to pay."""
    rows = list(PaymentAttempt.objects.filter(order_id=order_id).order_by("attempt_no"))
    entries = []
    for row in rows:
        entries.append(
            Entry(at=row.created_at, source="Payment", title="Attempt recorded", detail=row.pk)
        )
        if row.settled_at:
            entries.append(
                Entry(
                    at=row.settled_at,
                    source="Payment",
                    title=f"Attempt {row.status.lower()}",
                    detail=row.error_class or row.provider_payment_id or "",
                    tone=tone_of(row.status),
                )
            )
    return Part(
        title="Payment attempts",
        columns=("attempt", "no", "status", "provider's id", "amount", "sends", "queries", "error"),
        rows=[
            (
                row.pk, row.attempt_no, row.status, row.provider_payment_id or "",
                money(row.amount_cents, row.currency), row.submit_count, row.tries,
                row.error_class or "",
            )
            for row in rows
        ],
        entries=entries,
    )  # fmt: skip


def refunds_part(order_id: str) -> Part:
    """Refunds of captured attempts."""
    rows = list(Refund.objects.filter(order_id=order_id).order_by("created_at"))
    entries = []
    for row in rows:
        entries.append(
            Entry(
                at=row.created_at,
                source="Refund",
                title="Refund due",
                detail=f"{row.reason} {row.note}".strip(),
                tone=Tone.WAIT if row.settled_at is None else Tone.PLAIN,
            )
        )
        if row.settled_at:
            entries.append(
                Entry(
                    at=row.settled_at,
                    source="Refund",
                    title=f"Refund {row.status.lower()}",
                    detail=row.error_class or row.provider_refund_id or "",
                    tone=tone_of(row.status),
                )
            )
    return Part(
        title="Refunds",
        columns=("refund", "status", "reason", "provider's id", "amount", "restock", "asked by"),
        rows=[
            (
                row.pk, row.status, row.reason, row.provider_refund_id or "",
                money(row.amount_cents, row.currency), "yes" if row.restock else "no",
                row.requested_by or "the system",
            )
            for row in rows
        ],
        entries=entries,
    )  # fmt: skip


def webhooks_part(order_id: str) -> Part:
    """Webhooks that name one of the order's attempts or refunds."""
    subjects = [
        *PaymentAttempt.objects.filter(order_id=order_id).values_list("pk", flat=True),
        *Refund.objects.filter(order_id=order_id).values_list("provider_key", flat=True),
    ]
    rows = list(WebhookEvent.objects.filter(subject__in=subjects).order_by("received_at"))
    return Part(
        title="Webhooks",
        columns=("event", "kind", "subject", "status", "reason"),
        rows=[(row.event_id, row.kind, row.subject, row.status, row.reason or "") for row in rows],
        entries=[
            Entry(
                at=row.received_at,
                source="Webhook",
                title=f"{row.kind}: {row.status.lower()}",
                detail=row.event_id,
                tone=tone_of(row.status),
            )
            for row in rows
        ],
    )
