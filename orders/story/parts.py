"""The parts of a story, one function a source: rows as a table, and what they say happened."""

from collections.abc import Sequence

from inventory.ledger_reads import ledger_of
from messaging.event_archive import EventRecord
from messaging.traces import InboxTrace, OutboxTrace, QuarantineTrace
from orders import audit
from orders.amounts import money
from orders.models import (
    EffectRow,
    Notification,
    Order,
    OrderQueryRow,
    ReservationExtension,
    ReservationRow,
)
from orders.story.records import Entry, Part, Tone, tone_of


def reservation_entries(row: ReservationRow) -> list[Entry]:
    """What the reservation's row says."""
    rejected = row.outcome == "REJECTED"
    entries = [
        Entry(
            at=row.created_at,
            source="PostgreSQL",
            title=f"Reservation {row.outcome.lower()}",
            detail=row.reject_reason,
            tone=Tone.BAD if rejected else Tone.GOOD,
        )
    ]
    if row.release_due_at:
        restock = "units go back on sale" if row.restock else "units are withheld"
        entries.append(
            Entry(
                at=row.release_due_at,
                source="PostgreSQL",
                title="Release due",
                detail=restock,
                tone=Tone.PLAIN if row.released_at else Tone.WAIT,
            )
        )
    if row.released_at:
        entries.append(Entry(at=row.released_at, source="PostgreSQL", title="Released at the gate"))
    for extension in ReservationExtension.objects.filter(pk=row.pk):
        entries.append(
            Entry(
                at=extension.granted_at,
                source="PostgreSQL",
                title="Validity extended",
                detail=f"until {extension.valid_until:%Y-%m-%d %H:%M:%S} by {extension.granted_by}:"
                f" {extension.reason}",
            )
        )
    return entries


def order_entries(order: Order) -> list[Entry]:
    """What the order's row says."""
    entries = [
        Entry(
            at=order.created_at,
            source="PostgreSQL",
            title="Order created",
            detail=f"{order.quantity} x SKU {order.sku_id},"
            f" {money(order.amount_cents, order.currency)}",
            tone=Tone.GOOD,
        )
    ]
    if order.paid_at:
        entries.append(
            Entry(
                at=order.paid_at,
                source="PostgreSQL",
                title="Order paid",
                detail=order.payment_id,
                tone=Tone.GOOD,
            )
        )
    if order.canceled_at:
        entries.append(
            Entry(
                at=order.canceled_at,
                source="PostgreSQL",
                title="Order cancelled",
                detail=order.cancel_reason,
                tone=Tone.BAD,
            )
        )
    for act in audit.records_of(Order, order.pk):
        entries.append(
            Entry(
                at=act.action_time,
                source="Operator",
                title=f"By {act.user.get_username()}",
                detail=act.change_message,
            )
        )
    if order.status in {"CREATED", "PAYING"}:
        entries.append(
            Entry(
                at=order.expires_at,
                source="PostgreSQL",
                title="The order may be cancelled",
                detail="unpaid past this instant",
                tone=Tone.WAIT,
            )
        )
    return entries


def ledger_part(order_id: str) -> Part:
    """Moves of final stock."""
    rows = ledger_of(order_id)
    return Part(
        title="Stock ledger",
        columns=("kind", "SKU", "available", "units", "at"),
        rows=[(row.kind, row.sku_id, f"{row.delta:+d}", row.units, row.created_at) for row in rows],
        entries=[
            Entry(
                at=row.created_at,
                source="Ledger",
                title=f"{row.kind.capitalize()} booked",
                detail=f"available {row.delta:+d}",
            )
            for row in rows
        ],
    )


def effects_part(order_id: str) -> Part:
    """Effects of the groups of paid orders."""
    rows = list(EffectRow.objects.filter(source_id=order_id).order_by("created_at", "pk"))
    return Part(
        title="Effects",
        columns=("group", "of", "value", "unit", "detail", "at"),
        rows=[
            (
                row.consumer_group, row.source_type, row.value, row.unit,
                ", ".join(f"{k}: {v}" for k, v in row.detail.items()), row.created_at,
            )
            for row in rows
        ],
    )  # fmt: skip


def mails_part(order_id: str) -> Part:
    """Mails to the buyer."""
    rows = list(Notification.objects.filter(source_id=order_id).order_by("pk"))
    return Part(
        title="Mails",
        columns=("of", "status", "tries", "error"),
        rows=[(row.source_type, row.status, row.tries, row.error or "") for row in rows],
        entries=[
            Entry(
                at=row.sent_at or row.sending_at or row.created_at,
                source="Mail",
                title=f"{row.source_type}: {row.status.lower()}",
                detail=row.error,
                tone=tone_of(row.status),
            )
            for row in rows
        ],
    )


def read_model_part(order: Order) -> Part:
    """The projection, beside the order's own version."""
    rows = list(OrderQueryRow.objects.filter(pk=order.pk))
    return Part(
        title="Read model",
        columns=("status", "version", "order's version", "projected at"),
        rows=[
            (row.status, row.aggregate_version, order.aggregate_version, row.projected_at)
            for row in rows
        ],
    )


def messages_part(
    outbox: Sequence[OutboxTrace], archived: Sequence[EventRecord], first_message_id: str
) -> Part:
    """Every message of the purchase: the first one, what the outbox holds, what was archived."""
    kept = {record.event_id: record for record in archived}
    known = {row.event_id for row in outbox}
    rows: list[tuple[object, ...]] = [
        (first_message_id, "CREATE_ORDER", "by admission or scanner", "", "", "")
    ]
    rows += [
        (
            row.event_id, row.tag, row.state, row.attempts, row.sent_at or row.last_error or "",
            "yes" if row.event_id in kept else "",
        )
        for row in outbox
    ]  # fmt: skip
    rows += [(e.event_id, e.tag, "", "", "", "yes") for e in archived if e.event_id not in known]
    entries = [
        Entry(at=row.sent_at, source="Outbox", title=f"{row.tag} published", detail=row.event_id)
        for row in outbox
        if row.sent_at
    ]
    entries += [
        Entry(
            at=row.available_at,
            source="Outbox",
            title=f"{row.tag} {row.state}",
            detail=row.last_error or row.event_id,
            tone=Tone.BAD if row.state == "given up" else Tone.WAIT,
        )
        for row in outbox
        if not row.sent_at
    ]
    return Part(
        title="Messages",
        columns=("message", "tag", "outbox", "attempts", "sent at", "archived"),
        rows=rows,
        entries=entries,
    )


def inbox_part(rows: Sequence[InboxTrace]) -> Part:
    """What every group did with every message."""
    return Part(
        title="Inbox",
        columns=("group", "message", "outcome", "reason", "delivery", "at"),
        rows=[
            (r.group, r.message_id, r.outcome, r.reason or "", r.delivery_attempt, r.created_at)
            for r in rows
        ],
        entries=[
            Entry(
                at=row.created_at,
                source="Inbox",
                title=f"{row.group}: {row.outcome}",
                detail=f"delivery {row.delivery_attempt} {row.reason}".strip(),
                tone=Tone.BAD if row.outcome == "REJECTED" else Tone.PLAIN,
            )
            for row in rows
        ],
    )


def quarantine_part(rows: Sequence[QuarantineTrace]) -> Part:
    """Messages that somebody gave up on."""
    entries = [
        Entry(
            at=row.first_at,
            source="Quarantine",
            title=f"{row.group}: {row.reason}",
            detail=f"{row.occurrences} times",
            tone=Tone.BAD,
        )
        for row in rows
    ]
    entries += [
        Entry(
            at=row.resolved_at,
            source="Quarantine",
            title=f"{row.group}: resolved",
            detail=row.resolution,
            tone=Tone.GOOD,
        )
        for row in rows
        if row.resolved_at
    ]
    return Part(
        title="Quarantine",
        columns=("group", "message", "status", "reason", "times", "resolution"),
        rows=[
            (r.group, r.message_id, r.status, r.reason, r.occurrences, r.resolution or "")
            for r in rows
        ],
        entries=entries,
    )
