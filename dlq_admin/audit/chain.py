"""How an event is hashed (pure): the same bytes as the trigger's, computed apart from it."""

import hashlib
from datetime import UTC, datetime
from typing import Final

import msgspec

FIRST: Final = "0" * 64
_encoder: Final = msgspec.json.Encoder(order="sorted")


def event_hash(
    *,
    prev_hash: str,
    chain: int,
    seq: int,
    at: datetime,
    kind: str,
    user_id: int | None,
    actor: str,
    detail: str,
) -> str:
    """Return the hash of an event, as 64 hexadecimal digits.

    Args:
        prev_hash: of the event before it in its chain, `FIRST` before the first.
        chain: ticket number, 0 for none.
        seq: its number in the chain.
        at: aware.
        kind: code.
        user_id: of the user who acted, if any.
        actor: name.
        detail: JSON text as stored.
    """
    instant = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    user = "-" if user_id is None else str(user_id)
    parts = (prev_hash, str(chain), str(seq), instant, kind, user, str(len(actor)), actor, detail)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def heads_text(heads: dict[int, tuple[int, str]]) -> str:
    """Return chain ends as canonical JSON: {"chain": [seq, hash]}."""
    return _encoder.encode({str(chain): heads[chain] for chain in sorted(heads)}).decode()


def read_heads(text: str) -> dict[int, tuple[int, str]]:
    """Read what `heads_text` wrote; ValueError when it is anything else."""
    try:
        found = msgspec.json.decode(text, type=dict[str, tuple[int, str]])
        return {int(chain): end for chain, end in found.items()}
    except msgspec.MsgspecError as error:
        raise ValueError("not the ends of chains") from error


def anchor_hash(*, prev_hash: str, at: datetime, heads: str) -> str:
    """Return the hash of an anchor."""
    instant = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return hashlib.sha256("\n".join((prev_hash, instant, heads)).encode()).hexdigest()
