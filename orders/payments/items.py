"""Items for people: money that no loop can settle, in the one quarantine table."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from messaging import quarantine

# They stand in the group's place; no consumer group has such a name.
PAYMENT: Final = "PAYMENT"
REFUND: Final = "REFUND"
WEBHOOK: Final = "PAYMENT_WEBHOOK"


def open_item(kind: str, item_id: str, *, reason: str, keys: Sequence[str], body: bytes) -> None:
    """Open an item inside the caller's transaction; the same one again is one more occurrence.

    Args:
        kind: PAYMENT, REFUND or WEBHOOK.
        item_id: attempt id, refund id or the provider's event id.
        reason: stable code.
        keys: ids to search by, such as the order's.
        body: what a person needs to know, JSON (a webhook: as it came).
    """
    quarantine.store_in_transaction(
        [quarantine.own_entry(group=kind, message_id=item_id, reason=reason, keys=keys, body=body)]
    )


def open_with_facts(
    kind: str,
    item_id: str,
    *,
    reason: str,
    order_id: str,
    facts: Mapping[str, object],
    keys: Sequence[str] = (),
) -> None:
    """`open_item` of ours: found by its order and more keys, with facts for whoever looks."""
    open_item(
        kind,
        item_id,
        reason=reason,
        keys=(order_id, *keys),
        body=msgspec.json.encode({"order_id": order_id, **facts}),
    )


def resolve(kind: str, item_id: str, *, resolution: str) -> None:
    """Close an item inside the caller's transaction: it settled after all."""
    quarantine.resolve(group=kind, message_ids=[item_id], resolution=resolution)
