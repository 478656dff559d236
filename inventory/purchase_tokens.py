"""Purchase tokens at the gate: who has one, and until when (no I/O; `gate.py` runs it)."""

from inventory import keys
from inventory.call import Call


def issue_token(
    *, activity_id: int, sku_id: int, user_id: str, limit: int, lifetime_ms: int
) -> Call[int]:
    """Let a buyer have a token.

    Args:
        activity_id: the sale.
        sku_id: one of its SKUs.
        user_id: the buyer; one who has a valid token gets the same end again.
        limit: most valid tokens of the SKU at a time.
        lifetime_ms: how long a new one is valid.

    Returns:
        A call whose answer is the token's end in epoch ms, 0 when none is left.
    """
    return Call(
        script="issue_token",
        keys=(keys.tokens(activity_id, sku_id),),
        args=(user_id, limit, lifetime_ms),
        parse=int,
    )
