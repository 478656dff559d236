"""What Redis says about a reservation now."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from inventory import keys
from inventory.call import Call
from inventory.errors import GateUnavailable
from inventory.gate import gate
from inventory.selectors import serving_activities
from orders.story.records import Entry, Tone

_INSTANTS: Final = ("created_at", "valid_until", "next_retry_at", "lease_until")


@dataclass(frozen=True, kw_only=True, slots=True)
class GateView:
    """The hash, readable; where it stands in the queues; what it says about the course."""

    activity_id: int
    fields: dict[str, str]
    shown: Sequence[tuple[str, str]]
    entries: Sequence[Entry]
    note: str


def gate_view(reservation_id: str, *, activity_id: int, user_id: str, sku_id: int) -> GateView:
    """Read a reservation at the gate; without a known sale, in every sale that is served.

    Cost: one round trip a sale that is asked. A gate that does not answer is a note.
    """
    try:
        for candidate in [activity_id] if activity_id else serving_activities():
            raw = gate().run(_read(candidate, reservation_id))
            if raw["hash"] or activity_id:
                return _view(candidate, raw, reservation_id, user_id, sku_id)
    except GateUnavailable as error:
        return _nothing(activity_id, f"Redis does not answer: {error}")
    return _nothing(activity_id, "No sale's gate knows this reservation.")


def _read(activity_id: int, reservation_id: str) -> Call[dict[str, Any]]:
    return Call(
        commands=(
            ("HGETALL", keys.reservation(activity_id, reservation_id)),
            ("ZSCORE", keys.mq_pending(activity_id), reservation_id),
            ("ZSCORE", keys.open_reservations(activity_id), reservation_id),
        ),
        parse=lambda raw: {"hash": _pairs(raw[0]), "pending": raw[1], "open": raw[2]},
    )


def _view(
    activity_id: int, raw: dict[str, Any], reservation_id: str, user_id: str, sku_id: int
) -> GateView:
    fields: dict[str, str] = raw["hash"]
    buyer, sku = fields.get("user_id", user_id), int(fields.get("sku_id", sku_id) or 0)
    holder = gate().run(
        Call(
            commands=(("HGET", keys.buyers(activity_id, sku), buyer),),
            parse=lambda found: found[0] or "",
        )
    )
    shown = [
        (name, _score(value) if name in _INSTANTS else value)
        for name, value in sorted(fields.items())
    ]
    shown.append(("in mq_pending", _score(raw["pending"])))
    shown.append(("in open", _score(raw["open"])))
    shown.append(("buyers names", "this reservation" if holder == reservation_id else holder or ""))
    entries = []
    if fields:
        entries.append(
            Entry(
                at=_instant(fields["created_at"]),
                source="Redis",
                title="Reserved at the gate",
                detail=f"valid until {_instant(fields['valid_until']):%H:%M:%S}",
            )
        )
        if fields.get("status") == "RESERVED" and fields.get("mq_status") == "MQ_PENDING":
            entries.append(
                Entry(
                    at=_instant(fields["next_retry_at"]),
                    source="Redis",
                    title="The scanner sends it again",
                    detail=f"send attempt {fields.get('send_attempt')}",
                    tone=Tone.WAIT,
                )
            )
    return GateView(
        activity_id=activity_id,
        fields=fields,
        shown=shown,
        entries=entries,
        note="" if fields else "The gate has no hash of it (expired, settled, or lost).",
    )


def _nothing(activity_id: int, note: str) -> GateView:
    return GateView(activity_id=activity_id, fields={}, shown=(), entries=(), note=note)


def _pairs(flat: Any) -> dict[str, str]:
    if isinstance(flat, dict):
        return dict(flat)
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _instant(epoch_ms: str) -> datetime:
    return datetime.fromtimestamp(int(float(epoch_ms)) / 1000, tz=UTC)


def _score(value: str | None) -> str:
    """Return an instant as text; 0 and nothing are no instant."""
    return _instant(value).isoformat(" ", "milliseconds") if value and value != "0" else ""
