"""Plain reads of the gate, each one round trip and never a write (no I/O; `gate.py` runs them)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inventory import keys
from inventory.call import Call
from inventory.contracts import GateConfig, GateState, PendingStats, Reservation

# The fields that reserve.lua and claim_due.lua return, in their order.
RESERVATION_FIELDS: Final = (
    "request_id",
    "order_id",
    "message_id",
    "user_id",
    "sku_id",
    "quantity",
    "status",
    "mq_status",
    "created_at",
    "valid_until",
    "traceparent",
    "send_attempt",
    "reject_reason",
)


def reservation_of(
    *, activity_id: int, reservation_id: str, fields: Sequence[str | None]
) -> Reservation:
    """Build the record from RESERVATION_FIELDS as Redis returned them (None where not set)."""
    text = [value or "" for value in fields]
    return Reservation(
        activity_id=activity_id,
        sku_id=int(text[4] or 0),
        reservation_id=reservation_id,
        request_id=text[0],
        order_id=text[1],
        message_id=text[2],
        user_id=text[3],
        quantity=int(text[5] or 0),
        status=text[6],
        mq_status=text[7],
        created_at_ms=int(text[8] or 0),
        valid_until_ms=int(text[9] or 0),
        traceparent=text[10],
        send_attempt=int(text[11] or 0),
        reject_reason=text[12],
    )


def flat_pairs(raw: Any) -> list[tuple[Any, Any]]:
    """Read pairs, flat, nested or as a map: whatever the client and its protocol make of them."""
    if isinstance(raw, Mapping):
        return list(raw.items())
    if raw and isinstance(raw[0], (list, tuple)):
        return [(first, second) for first, second in raw]
    return list(zip(raw[::2], raw[1::2], strict=True))


def time_ms(time: Sequence[Any]) -> int:
    """Read an answer of TIME as epoch milliseconds."""
    return int(time[0]) * 1000 + int(time[1]) // 1000


def due_ids(*, activity_id: int, limit: int) -> Call[list[str]]:
    """Read up to `limit` reservations whose next send is due by Redis TIME, the oldest first."""

    def parse(raw: Any) -> list[str]:
        time, page = raw
        now = time_ms(time)
        return [rid for rid, score in flat_pairs(page) if float(score) <= now]

    pending = keys.mq_pending(activity_id)
    return Call(commands=(("TIME",), ("ZRANGE", pending, 0, limit - 1, "WITHSCORES")), parse=parse)


def reservations(
    *, activity_id: int, reservation_ids: Sequence[str]
) -> Call[list[Reservation | None]]:
    """Read reservations; None where the hash is gone (or never was)."""

    def parse(raw: Any) -> list[Reservation | None]:
        return [
            reservation_of(activity_id=activity_id, reservation_id=rid, fields=fields)
            if fields[6]
            else None
            for rid, fields in zip(reservation_ids, raw, strict=True)
        ]

    return Call(
        commands=tuple(
            ("HMGET", keys.reservation(activity_id, rid), *RESERVATION_FIELDS)
            for rid in reservation_ids
        ),
        parse=parse,
    )


def gate_state(*, activity_id: int, sku_id: int) -> Call[GateState | None]:
    """Read one gate and its stock; None when the gate's hash is missing."""

    def parse(raw: Any) -> GateState | None:
        gate: dict[str, str] = dict(flat_pairs(raw[0]))
        if "status" not in gate:
            return None
        return GateState(
            activity_id=activity_id,
            sku_id=sku_id,
            status=gate["status"],
            stopped=gate.get("stopped") == "1",
            config=GateConfig(
                starts_ms=int(gate.get("starts_ms", 0)),
                ends_ms=int(gate.get("ends_ms", 0)),
                validity_ms=int(gate.get("validity_ms", 0)),
                limit_per_user=int(gate.get("limit_per_user", 0)),
                max_open=int(gate.get("max_open", 0)),
                max_pending=int(gate.get("max_pending", 0)),
            ),
            version=int(gate.get("version", 0)),
            epoch=int(gate.get("epoch", 0)),
            rebuild_run=int(gate.get("rebuild_run", 0)),
            stock=-1 if raw[1] is None else int(raw[1]),
            warm=gate.get("warm") == "1",
            rebuild_seen=int(gate.get("rebuild_seen", 0)),
        )

    return Call(
        commands=(
            ("HGETALL", keys.gate(activity_id, sku_id)),
            ("GET", keys.stock(activity_id, sku_id)),
        ),
        parse=parse,
    )


def holders(*, activity_id: int, sku_id: int) -> Call[dict[str, str]]:
    """Read who holds units of a SKU: user → reservation."""
    return Call(
        commands=(("HGETALL", keys.buyers(activity_id, sku_id)),),
        parse=lambda raw: dict(flat_pairs(raw[0])),
    )


def holders_piece(
    *, activity_id: int, sku_id: int, cursor: str, count: int
) -> Call[tuple[str, list[str]]]:
    """Read some of the users who hold units of a SKU.

    Args:
        activity_id: the sale.
        sku_id: its SKU.
        cursor: "0" at first, then the one that the last piece gave; "0" again at the end.
        count: about how many.

    Returns:
        The next cursor and the users, some of them twice perhaps.
    """

    def parse(raw: Any) -> tuple[str, list[str]]:
        next_cursor, found = raw[0]
        return str(next_cursor), [user for user, _ in flat_pairs(found)]

    key = keys.buyers(activity_id, sku_id)
    return Call(commands=(("HSCAN", key, cursor, "COUNT", count),), parse=parse)


def named_reservations(
    *, activity_id: int, sku_id: int, users: Sequence[str]
) -> Call[list[str | None]]:
    """Read which reservation each of these users holds of a SKU."""
    return Call(
        commands=(("HMGET", keys.buyers(activity_id, sku_id), *users),) if users else (),
        parse=lambda raw: list(raw[0]) if raw else [],
    )


def known_reservations(*, activity_id: int, reservation_ids: Sequence[str]) -> Call[list[bool]]:
    """Read which of these reservations the gate knows, whatever became of them."""
    return Call(
        commands=tuple(("EXISTS", keys.reservation(activity_id, one)) for one in reservation_ids),
        parse=lambda raw: [bool(found) for found in raw],
    )


def applied_operations(
    *, activity_id: int, sku_id: int, operation_ids: Sequence[str]
) -> Call[tuple[int, int, list[bool]]]:
    """Read what the gate of a SKU remembers of operators' changes.

    Returns:
        Version of the newest change of status, of the newest edit, and for each of these top-ups
        and cuts whether it acted in this epoch.
    """
    versions = ("HMGET", keys.gate(activity_id, sku_id), "status_version", "edit_version")
    moves = ("HMGET", keys.ops(activity_id, sku_id), *operation_ids)

    def parse(raw: Sequence[Any]) -> tuple[int, int, list[bool]]:
        status, edit = (int(found or 0) for found in raw[0])
        return status, edit, [found is not None for found in (raw[1] if operation_ids else ())]

    return Call(
        commands=(versions, moves) if operation_ids else (versions,),
        parse=parse,
    )


def open_page(
    *, activity_id: int, min_score_ms: int, max_score_ms: int, offset: int, limit: int
) -> Call[list[tuple[str, int]]]:
    """Read a page of `open`: (reservation, valid_until ms) with a score within both bounds."""
    return Call(
        commands=(
            (
                "ZRANGE",
                keys.open_reservations(activity_id),
                min_score_ms,
                max_score_ms,
                "BYSCORE",
                "LIMIT",
                offset,
                limit,
                "WITHSCORES",
            ),
        ),
        parse=lambda raw: [(rid, int(float(score))) for rid, score in flat_pairs(raw[0])],
    )


def pending_stats(*, activity_id: int) -> Call[PendingStats]:
    """Read how much of a sale is unsent and how much has no outcome yet."""

    def parse(raw: Any) -> PendingStats:
        time, pending, oldest, open_count = raw
        return PendingStats(
            pending=int(pending),
            oldest_due_ms=int(float(flat_pairs(oldest)[0][1])) if oldest else 0,
            open=int(open_count),
            redis_now_ms=time_ms(time),
        )

    pending = keys.mq_pending(activity_id)
    return Call(
        commands=(
            ("TIME",),
            ("ZCARD", pending),
            ("ZRANGE", pending, 0, 0, "WITHSCORES"),
            ("ZCARD", keys.open_reservations(activity_id)),
        ),
        parse=parse,
    )
