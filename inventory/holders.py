"""Who holds units of a SKU, read in pieces: one answer with 100 000 of them takes too long."""

from typing import Final

from inventory import verbs
from inventory.gate import AsyncGate

PIECE: Final = 1_000  # some 60 kB and a fraction of a millisecond of Redis' time


async def read_holders(gate: AsyncGate, *, activity_id: int, sku_id: int) -> set[str]:
    """Return the users who hold units of a SKU: all who hold them while it reads.

    Raises:
        GateUnavailable: a piece was not read within the deadline.

    Cost: a read for each 1 000 holders, one after the other.
    """
    users: set[str] = set()
    cursor = "0"
    while True:
        cursor, piece = await gate.run(
            verbs.holders_piece(activity_id=activity_id, sku_id=sku_id, cursor=cursor, count=PIECE)
        )
        users.update(piece)
        if cursor == "0":
            return users
