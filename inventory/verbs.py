"""The gate's verbs on reservations, one function for each Lua file (no I/O; `gate.py` runs them).

All keys are built here, from `keys.py`, and given to the script. Verbs on the gates themselves are
in `gate_verbs.py`, plain reads in `reads.py`; both are offered here too. Source: docs/protocol.md.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from inventory import keys
from inventory.call import Call
from inventory.contracts import (
    ClaimReply,
    ConfirmCode,
    GiveBackCode,
    GiveBackItem,
    MarkCode,
    ReleaseCode,
    ReleaseItem,
    ReleaseReply,
)
from inventory.gate_verbs import (
    adjust_stock,
    adopt,
    begin_rebuild,
    close_for_rebuild,
    close_gate,
    delete_gate,
    edit_gate,
    finish_rebuild,
    load_gate,
    move_mark,
    open_gate,
)
from inventory.purchase_tokens import issue_token
from inventory.reads import (
    applied_operations,
    due_ids,
    gate_state,
    holders,
    holders_piece,
    known_reservations,
    named_reservations,
    open_page,
    pending_stats,
    reservation_of,
    reservations,
)
from inventory.reserve import reserve

__all__ = [
    "Call",
    "adjust_stock",
    "adopt",
    "applied_operations",
    "begin_rebuild",
    "claim_due",
    "close_for_rebuild",
    "close_gate",
    "confirm",
    "delete_gate",
    "due_ids",
    "edit_gate",
    "finish_rebuild",
    "gate_state",
    "give_back",
    "holders",
    "holders_piece",
    "issue_token",
    "known_reservations",
    "load_gate",
    "mark_sent",
    "move_mark",
    "named_reservations",
    "open_gate",
    "open_page",
    "pending_stats",
    "release",
    "reschedule",
    "reservations",
    "reserve",
]


def _numbered(sku_ids: Iterable[int]) -> dict[int, int]:
    """Number the different SKUs of a batch from 1: the scripts name a SKU by its place in KEYS."""
    return {sku_id: number for number, sku_id in enumerate(dict.fromkeys(sku_ids), start=1)}


def _zsets(activity_id: int) -> tuple[str, str]:
    return keys.mq_pending(activity_id), keys.open_reservations(activity_id)


def _stock_keys(activity_id: int, sku_ids: Iterable[int]) -> list[str]:
    return [
        key
        for sku_id in sku_ids
        for key in (
            keys.gate(activity_id, sku_id),
            keys.stock(activity_id, sku_id),
            keys.buyers(activity_id, sku_id),
        )
    ]


def mark_sent(
    *, activity_id: int, reservation_ids: Sequence[str], lease_owner: str
) -> Call[list[MarkCode]]:
    """Note that the broker has confirmed these messages: RESERVED + MQ_PENDING → MQ_SENT.

    Args:
        activity_id: the sale.
        reservation_ids: whose message a send answered CONFIRMED.
        lease_owner: who sent. No fence: the message is stored, also when the lease was lost
            meanwhile, so that everybody may say it. The script does not get it.
    """
    return Call(
        script="mark_sent",
        keys=(
            keys.mq_pending(activity_id),
            *(keys.reservation(activity_id, rid) for rid in reservation_ids),
        ),
        args=tuple(reservation_ids),
        parse=lambda raw: [MarkCode(code) for code in raw],
    )


def reschedule(
    *, activity_id: int, items: Sequence[tuple[str, int]], lease_owner: str
) -> Call[list[MarkCode]]:
    """Put reservations back into the queue of sends, by the owner of their lease only.

    Args:
        activity_id: the sale.
        items: (reservation id, delay in ms from now) each.
        lease_owner: who holds the lease; another's answers NOT_APPLICABLE.
    """
    return Call(
        script="reschedule",
        keys=(
            keys.mq_pending(activity_id),
            *(keys.reservation(activity_id, rid) for rid, _ in items),
        ),
        args=(lease_owner, *(part for item in items for part in item)),
        parse=lambda raw: [MarkCode(code) for code in raw],
    )


def claim_due(
    *, activity_id: int, reservation_ids: Sequence[str], lease_owner: str, lease_ms: int
) -> Call[ClaimReply]:
    """Take the lease of those of `reservation_ids` (from `due_ids`) that are still due and free.

    Args:
        activity_id: the sale.
        reservation_ids: candidates; score, status and lease are checked again in the script.
        lease_owner: the caller's name, the fence of a later `reschedule`.
        lease_ms: how long the caller may take, ms.
    """

    def parse(raw: Any) -> ClaimReply:
        dropped, claimed = raw
        return ClaimReply(
            reservations=[
                reservation_of(activity_id=activity_id, reservation_id=row[0], fields=row[1:])
                for row in claimed
            ],
            dropped=dropped,
        )

    return Call(
        script="claim_due",
        keys=(
            keys.mq_pending(activity_id),
            *(keys.reservation(activity_id, rid) for rid in reservation_ids),
        ),
        args=(lease_owner, lease_ms, *reservation_ids),
        parse=parse,
    )


def give_back(
    *, activity_id: int, items: Sequence[GiveBackItem], lease_owner: str
) -> Call[list[GiveBackCode]]:
    """Undo reservations whose send failed for certain, if nobody else can have touched them.

    Args:
        activity_id: the sale.
        items: the reservations, with user, units and idempotency key as given to `reserve`.
        lease_owner: as given to `reserve`; the lease must still run.
    """
    numbers = _numbered(item.sku_id for item in items)
    return Call(
        script="give_back",
        keys=(
            *_zsets(activity_id),
            *_stock_keys(activity_id, numbers),
            *(
                key
                for item in items
                for key in (
                    keys.reservation(activity_id, item.reservation_id),
                    keys.request(activity_id, item.user_id, item.idempotency_key),
                )
            ),
        ),
        args=(
            len(numbers),
            len(items),
            lease_owner,
            *(
                part
                for item in items
                for part in (
                    numbers[item.sku_id],
                    item.reservation_id,
                    item.user_id,
                    item.quantity,
                )
            ),
        ),
        parse=lambda raw: [GiveBackCode(code) for code in raw],
    )


def confirm(*, activity_id: int, items: Sequence[tuple[int, str]]) -> Call[list[ConfirmCode]]:
    """Tell the gate that PostgreSQL has an order for these reservations.

    Args:
        activity_id: the sale.
        items: (SKU id, reservation id) each.
    """
    numbers = _numbered(sku_id for sku_id, _ in items)
    return Call(
        script="confirm",
        keys=(
            *_zsets(activity_id),
            *(keys.gate(activity_id, sku_id) for sku_id in numbers),
            *(keys.reservation(activity_id, rid) for _, rid in items),
        ),
        args=(
            len(numbers),
            len(items),
            *(part for sku_id, rid in items for part in (numbers[sku_id], rid)),
        ),
        parse=lambda raw: [ConfirmCode(code) for code in raw],
    )


def release(*, activity_id: int, items: Sequence[ReleaseItem]) -> Call[list[ReleaseReply]]:
    """End reservations at the gate; units go back if and only if `buyers` still names them.

    Args:
        activity_id: the sale.
        items: reservation, user, units and restock, all from PostgreSQL.
    """
    numbers = _numbered(item.sku_id for item in items)
    return Call(
        script="release",
        keys=(
            *_zsets(activity_id),
            *_stock_keys(activity_id, numbers),
            *(keys.reservation(activity_id, item.reservation_id) for item in items),
        ),
        args=(
            len(numbers),
            len(items),
            *(
                part
                for item in items
                for part in (
                    numbers[item.sku_id],
                    item.reservation_id,
                    item.user_id,
                    item.quantity,
                    1 if item.restock else 0,
                    item.reason,
                )
            ),
        ),
        parse=lambda raw: [
            ReleaseReply(code=ReleaseCode(code), given_back=units)
            for code, units in zip(raw[::2], raw[1::2], strict=True)
        ],
    )
