"""Puts a story together."""

from datetime import UTC, datetime

from messaging import event_archive, traces
from messaging.masking import masked_body
from orders.amounts import money
from orders.models import Order, ReservationRow
from orders.status import of_order, of_reject
from orders.story import money_parts, parts
from orders.story.find import reservation_of
from orders.story.gate_part import GateView, gate_view
from orders.story.records import Body, Entry, Part, Story, Tone


def story_of(any_id: str, *, with_payments: bool = True) -> Story | None:
    """Tell the whole story of a purchase.

    Args:
        any_id: any id of it, see `reservation_of`.
        with_payments: also attempts, refunds and webhooks.

    Returns:
        The story; None when no store knows anything of the id.

    Cost: about fifteen look-ups by key and two round trips to Redis; a gate that does not answer is
    a note, not a failure.
    """
    reservation_id = reservation_of(any_id)
    if not reservation_id:
        return None
    suffix = reservation_id.removeprefix("rsv_")
    row = ReservationRow.objects.filter(pk=reservation_id).first()
    order = Order.objects.filter(reservation_id=reservation_id).first()
    gate = gate_view(
        reservation_id,
        activity_id=row.activity_id if row else 0,
        user_id=row.user_id if row else "",
        sku_id=row.sku_id if row else 0,
    )
    order_id = row.order_id if row else gate.fields.get("order_id", f"ord_{suffix}")
    first_message_id = row.message_id if row else gate.fields.get("message_id", f"evt_{suffix}")
    archived = event_archive.events_of(order_id)
    outbox = traces.outbox_of(reservation_id=reservation_id, around=_instants(row, order, archived))
    message_ids = [
        first_message_id,
        *(trace.event_id for trace in outbox),
        *(record.event_id for record in archived),
    ]
    quarantined = traces.quarantine_of(reservation_id=reservation_id, message_ids=message_ids)
    if row is None and order is None and not gate.fields and not quarantined:
        return None
    found = [
        parts.messages_part(outbox, archived, first_message_id),
        parts.inbox_part(traces.inbox_of(message_ids)),
        parts.quarantine_part(quarantined),
        parts.ledger_part(order_id),
    ]
    if with_payments:
        found += [
            money_parts.attempts_part(order_id),
            money_parts.refunds_part(order_id),
            money_parts.webhooks_part(order_id),
        ]
    found += [parts.effects_part(order_id), parts.mails_part(order_id)]
    if order:
        found.append(parts.read_model_part(order))
    headline, tone = _headline(row, order, gate, held=any(q.status == "OPEN" for q in quarantined))
    return Story(
        reservation_id=reservation_id,
        headline=headline,
        tone=tone,
        ids=[
            ("reservation", reservation_id),
            ("order", order_id),
            ("request", row.request_id if row else gate.fields.get("request_id", "")),
            ("message", first_message_id),
            ("trace", order.traceparent if order else gate.fields.get("traceparent", "")),
        ],
        facts=_facts(row, order, gate),
        gate=gate.shown,
        timeline=_timeline(row, order, gate, found),
        parts=[part for part in found if part.rows],
        bodies=_bodies(outbox, archived),
        notes=[gate.note] if gate.note else [],
    )


def _instants(
    row: ReservationRow | None, order: Order | None, archived: list[event_archive.EventRecord]
) -> list[datetime]:
    known: list[datetime | None] = [record.occurred_at for record in archived]
    if row:
        known += [row.created_at, row.release_due_at]
    if order:
        known += [order.created_at, order.paid_at, order.canceled_at]
    return [instant for instant in known if instant is not None]


def _headline(
    row: ReservationRow | None, order: Order | None, gate: GateView, *, held: bool
) -> tuple[str, Tone]:
    if order:
        ended = order.status in {"CANCELED", "REFUNDED"}
        tone = Tone.BAD if ended else Tone.GOOD if order.paid_at else Tone.WAIT
        return f"{of_order(order.status).value} · {order.status}", tone
    if row:
        return f"{of_reject(row.reject_reason).value} · {row.reject_reason}", Tone.BAD
    if held:
        return "DELAYED · an open ticket holds it", Tone.WAIT
    status = f"{gate.fields.get('status', '?')} · {gate.fields.get('mq_status', '?')}"
    return f"no outcome yet · {status}", Tone.WAIT


def _facts(
    row: ReservationRow | None, order: Order | None, gate: GateView
) -> list[tuple[str, object]]:
    fields = gate.fields
    facts: list[tuple[str, object]] = [
        ("buyer", row.user_id if row else fields.get("user_id", "")),
        ("activity", row.activity_id if row else gate.activity_id or ""),
        ("SKU", row.sku_id if row else fields.get("sku_id", "")),
        ("quantity", row.quantity if row else fields.get("quantity", "")),
    ]
    if row:
        facts += [("outcome", row.outcome), ("release", row.release_state)]
    if order:
        amount = money(order.amount_cents, order.currency)
        facts += [("amount", amount), ("version", order.aggregate_version)]
    return facts


def _timeline(
    row: ReservationRow | None, order: Order | None, gate: GateView, found: list[Part]
) -> list[Entry]:
    """All entries by time; without a hash the id itself tells when it was reserved."""
    entries = list(gate.entries)
    if row:
        entries += parts.reservation_entries(row)
        if not gate.entries:
            drawn_ms = _ulid_ms(row.reservation_id)
            entries.append(
                Entry(
                    at=datetime.fromtimestamp(drawn_ms / 1000, tz=UTC),
                    source="id",
                    title="Reserved (by the time in its id)",
                )
            )
    if order:
        entries += parts.order_entries(order)
    for part in found:
        entries += part.entries
    return sorted(entries, key=lambda entry: entry.at)


def _ulid_ms(reservation_id: str) -> int:
    value = 0
    for character in reservation_id.removeprefix("rsv_")[:10]:
        value = value * 32 + "0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(character)
    return value


def _bodies(
    outbox: list[traces.OutboxTrace], archived: list[event_archive.EventRecord]
) -> list[Body]:
    bodies = {row.event_id: Body(event_id=row.event_id, tag=row.tag, text=masked_body(row.body))
              for row in outbox}  # fmt: skip
    for record in archived:
        bodies.setdefault(
            record.event_id,
            Body(event_id=record.event_id, tag=record.tag, text=masked_body(record.body)),
        )
    return [bodies[event_id] for event_id in sorted(bodies)]
