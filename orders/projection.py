"""The Redis half of the projection: what was ordered is confirmed at the gate, buyers are told.

The order consumer announces what it has committed (`announce`), so that nobody waits for the event,
which may be held back in a rush; the event does it where that failed. `confirm` answered RETRY (a
rebuild runs) is acked all the same: the sweep makes up for it past valid_until. So does it when an
event never arrives.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import structlog

from inventory import keys, verbs
from inventory.call import Call
from inventory.contracts import ConfirmCode
from inventory.errors import GateUnavailable
from inventory.gate import ONE_SERVER, gate
from inventory.turns import each_sale
from messaging.errors import TransientError
from orders import metrics
from orders.contracts import ORDER_CREATED, ORDER_REJECTED, CreateOrder, OrderEvent
from orders.reject_order import KnownReservation
from orders.states import OrderStatus
from orders.status import of_order, of_reject

_SILENCE_S: Final = 5.0  # so long nothing is announced after Redis did not answer

log = structlog.get_logger(__name__)


class StatusChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is published for SSE; a reader keeps the highest version he has seen."""

    reservation_id: str
    order_id: str
    status: str
    reason: str
    version: int


_encoder: Final = msgspec.json.Encoder()


class Announcer:
    """Tells gate and waiting buyers of new orders at once, ahead of their events; best effort."""

    def __init__(self) -> None:
        self._silent_until: dict[str, float] = {}  # Redis server → monotonic seconds

    def __call__(self, made: Sequence[CreateOrder]) -> None:
        """Confirm and publish orders that were just committed; without Redis their events do it.

        Cost: for each activity one Lua call and one pipelined publish. A Redis server that does
        not answer holds up one batch, not every one: the next try is 5 s later.
        """
        by_activity: dict[int, list[CreateOrder]] = defaultdict(list)
        for message in made:
            by_activity[message.activity_id].append(message)
        for activity_id, group in sorted(by_activity.items()):
            server = ONE_SERVER
            try:
                server = gate().server_of(keys.mark(activity_id))
                if time.monotonic() < self._silent_until.get(server, 0.0):
                    continue
                confirm(activity_id, [(m.sku_id, m.reservation_id) for m in group])
                gate().run(_publish(activity_id, [_new_order(message) for message in group]))
            except Exception as error:  # whatever it is: what is committed must not look failed
                self._silent_until[server] = time.monotonic() + _SILENCE_S
                metrics.CONFIRM.labels(result="unavailable").inc()
                log.warning(
                    "orders_not_announced",
                    activity_id=activity_id,
                    error=str(error),
                    exc_info=not isinstance(error, GateUnavailable),
                )


def project(events: Sequence[OrderEvent]) -> None:
    """Confirm what was ordered, then publish every change on its activity's channel.

    What the gate holds as CONFIRMED already was announced, and is not published once more (if that
    was lost, the buyer's stream is read again every 5 s).

    Sales on a cluster's shard that is away are left out: the sweep and the streams' own reading
    make up for it, and those of the other shards do not wait.

    Raises:
        TransientError: Redis cannot be reached: receive nothing until it can.

    Cost: for each activity one Lua call and one pipelined publish.
    """
    by_activity: dict[int, list[OrderEvent]] = defaultdict(list)
    for event in events:
        by_activity[event.activity_id].append(event)
    try:
        each_sale(by_activity, _project)
    except GateUnavailable as error:
        raise TransientError("the gate cannot be reached") from error


def _project(activity_id: int, events: Sequence[OrderEvent]) -> None:
    created = [event for event in events if event.event_type == ORDER_CREATED]
    codes = confirm(activity_id, [(e.sku_id, e.reservation_id) for e in created])
    announced = {
        event.event_id
        for event, code in zip(created, codes, strict=True)
        if code is ConfirmCode.ALREADY
    }
    news = [_change(event) for event in events if event.event_id not in announced]
    gate().run(_publish(activity_id, news))


def confirm(activity_id: int, items: Sequence[tuple[int, str]]) -> list[ConfirmCode]:
    """Confirm ordered reservations (SKU, reservation) at the gate; counts every answer.

    Raises:
        GateUnavailable: what Redis did is unknown.
    """
    if not items:
        return []
    codes = gate().run(verbs.confirm(activity_id=activity_id, items=items))
    for code in codes:
        metrics.CONFIRM.labels(result=code.name.lower()).inc()
    return codes


def confirm_known(known: Iterable[KnownReservation]) -> None:
    """Make up for a confirm that may have been lost; without Redis the sweep does it later."""
    by_activity: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for one in known:
        by_activity[one.activity_id].append((one.sku_id, one.reservation_id))
    try:
        each_sale(by_activity, confirm)
    except GateUnavailable:
        metrics.CONFIRM.labels(result="unavailable").inc()
        log.warning("confirm_unavailable", activities=sorted(by_activity))


def _publish(activity_id: int, changes: Sequence[StatusChange]) -> Call[None]:
    """Build the publishing of many changes in one round trip."""
    channel = keys.events_channel(activity_id)
    return Call(
        commands=tuple(("PUBLISH", channel, _encoder.encode(c).decode()) for c in changes),
        parse=lambda _: None,
    )


def _new_order(message: CreateOrder) -> StatusChange:
    return StatusChange(
        reservation_id=message.reservation_id,
        order_id=message.order_id,
        status=of_order(OrderStatus.CREATED).value,
        reason="",
        version=1,
    )


def _change(event: OrderEvent) -> StatusChange:
    reason = event.payload.reason
    rejected = event.event_type == ORDER_REJECTED
    status = of_reject(reason) if rejected else of_order(event.payload.status)
    return StatusChange(
        reservation_id=event.reservation_id,
        order_id=event.order_id,
        status=status.value,
        reason=reason,
        version=event.aggregate_version,
    )
