"""What a Redis that was started again has forgotten: orders whose reservations it does not know.

The moving mark tells no copy that is younger than one of its steps, and a step takes as long as a
round of the `mark` job: seconds, on a busy machine. An order knows better, whenever it was made.
As long as no loss was rebuilt, the gate keeps the hash of every reservation, and after a rebuild
`buyers` names every live order: a live order that has neither was reserved after the copy was made.
Source: docs/protocol.md, "The moving mark" (rule `asked-orders`).
"""

from collections import defaultdict
from datetime import UTC, datetime
from typing import Final, NamedTuple

from ulid import ULID

from inventory import rebuild, verbs
from inventory.gate import gate
from inventory.selectors import ActivityRecord
from orders.database import fetch

# What the clocks of web processes, Redis and PostgreSQL may differ by, and Redis' whole seconds.
SLACK_MS: Final = 3_000
# Of what was reserved before the restart the newest is what a copy forgot: no more is looked at.
NEWEST: Final = 500
SPAN_MS: Final = 900_000  # looked at before the restart, and for so long after it

# The newest live orders of a sale between two instants, by the time their ids were drawn.
_ORDERS: Final = """
SELECT sku_id, user_id, reservation_id FROM orders_order
 WHERE order_id >= %s AND order_id < %s AND activity_id = %s
   AND status NOT IN ('CANCELED', 'REFUNDED')
 ORDER BY order_id DESC LIMIT %s
"""


class ServerTimes(NamedTuple):
    """When a Redis server's process began, and its clock; epoch ms."""

    began_ms: int
    now_ms: int


def forgotten_order(record: ActivityRecord, times: ServerTimes) -> str | None:
    """Return a reservation that was made before the server began, has an order, and is unknown.

    Looked for until what was reserved before has run out: until then a message may become an
    order. Sales that noted a loss since the server began are left out: what was lost is known, and
    `rebuild_gate --force` may have sold it again.

    Args:
        record: an opened sale; its gates are there, and no loss is noted.
        times: of the server that holds its keys.

    Raises:
        GateUnavailable: Redis cannot be reached.

    Cost: nothing when the server is older than that; else one statement on the orders' key, and a
    read for each SKU of at most 500 buyers in all.
    """
    activity_id = record.activity_id
    # An edit may have made the validity shorter: not so soon.
    if times.now_ms > times.began_ms + max(record.validity_s * 1000, SPAN_MS) + SLACK_MS:
        return None
    orders: dict[int, dict[str, str]] = defaultdict(dict)
    for sku_id, user_id, reservation_id in fetch(
        _ORDERS,
        (
            _first_id(times.began_ms - SPAN_MS),
            _first_id(times.began_ms + SLACK_MS),
            activity_id,
            NEWEST,
        ),
    ):
        orders[sku_id][user_id] = reservation_id
    missing: list[str] = []
    for sku_id, wanted in sorted(orders.items()):
        named = gate().run(
            verbs.named_reservations(activity_id=activity_id, sku_id=sku_id, users=list(wanted))
        )
        missing += [
            reservation_id
            for reservation_id, holder in zip(wanted.values(), named, strict=True)
            if holder != reservation_id
        ]
    known = gate().run(verbs.known_reservations(activity_id=activity_id, reservation_ids=missing))
    unknown = [one for one, exists in zip(missing, known, strict=True) if not exists]
    # Asked last: a rebuild that finished meanwhile has forgotten on purpose.
    began_at = datetime.fromtimestamp((times.began_ms - SLACK_MS) / 1000, tz=UTC)
    if not unknown or rebuild.lost_since(activity_id, began_at):
        return None
    return max(unknown)


def _first_id(epoch_ms: int) -> str:
    """Return what sorts before every order id that was drawn since an instant."""
    return f"ord_{str(ULID.from_timestamp(max(epoch_ms, 0) / 1000))[:10]}"
