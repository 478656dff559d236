"""What an approval is bound to (pure): ids, payload, verdict, rate cap, versions of own rows.

Never the stock row: it changes all the time and belongs to everybody.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

_encoder: Final = msgspec.json.Encoder(order="sorted")


def item_hash(
    *, ids: Mapping[str, str], payload_sha256: str, verdict: str, versions: Mapping[str, str]
) -> str:
    """Hash one message's plan.

    Args:
        ids: message, reservation, order, group.
        payload_sha256: of the bytes that would be sent.
        verdict: verdict and reason.
        versions: order, reservation, inbox and dead message rows, each as a short text.
    """
    return _digest(["item", dict(ids), payload_sha256, verdict, dict(versions)])


def batch_hash(
    *, group: str, disposition: str, rate_cap: int, extension_s: int, items: Sequence[str]
) -> str:
    """Hash a batch's plan.

    Args:
        group: whose messages.
        disposition: what is done with them.
        rate_cap: messages a second at most.
        extension_s: how long extension rows last, 0 for none.
        items: hashes of its items, in order.
    """
    return _digest(["batch", group, disposition, rate_cap, extension_s, list(items)])


def _digest(value: object) -> str:
    return hashlib.sha256(_encoder.encode(value)).hexdigest()
