"""From a delivered message to its disposition: decode, call, answer. One class for each group.

A body that cannot be decoded is a quarantine decision for that message alone; whatever a call
raises rolls its batch back and is classified by the consumer loop.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

import faultpoint
from inventory import verbs
from inventory.errors import GateUnavailable
from inventory.gate import gate
from inventory.selectors import serving_activities
from messaging import spans
from messaging.broker.base import ReceivedMessage
from messaging.disposition import DONE, DUPLICATE, Decision, quarantine
from messaging.envelope import StrictDecoder, format_instant, parse_instant
from messaging.errors import PermanentError
from messaging.facts import BodyFacts, read_facts
from orders import projection, query
from orders.cancel_order import cancel_unpaid
from orders.contracts import (
    CancelIfUnpaid,
    CreateOrder,
    OrderEvent,
    ReleaseReservation,
    cancel_decoder,
    create_order_decoder,
    order_event_decoder,
    release_decoder,
)
from orders.create_order import Incoming, create_orders
from orders.release import release_reservations

T = TypeVar("T", bound=msgspec.Struct)


def _probe_gate() -> None:
    """One server that answers is enough: a shard that is away stops its own sales only."""
    if not gate().answering():
        raise GateUnavailable("no server of Redis answers")


class DecodingHandler(Generic[T]):
    """Decodes a batch, hands the good ones on, puts the answers back in place."""

    def __init__(self, decoder: StrictDecoder[T]) -> None:
        self._decoder = decoder

    def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
        """Answer each message, in order. Raises what `apply` raises, for the whole batch."""
        decisions: list[Decision | None] = []
        good: list[tuple[ReceivedMessage, T]] = []
        for message in messages:
            try:
                good.append((message, self._decoder.decode(message.body)))
                decisions.append(None)
            except PermanentError as error:
                decisions.append(quarantine(error.reason, error.detail))
        answers = iter(self.apply(good) if good else ())
        return [decision or next(answers) for decision in decisions]

    def apply(self, batch: Sequence[tuple[ReceivedMessage, T]]) -> Sequence[Decision]:
        """Apply decoded messages; one decision for each."""
        raise NotImplementedError


class OrderCreateHandler(DecodingHandler[CreateOrder]):
    """ORDER_CREATE → the order transaction.

    Args:
        announce: called with what became an order, once that is committed; must not raise.
    """

    def __init__(
        self,
        decoder: StrictDecoder[CreateOrder],
        *,
        announce: Callable[[Sequence[CreateOrder]], None],
    ) -> None:
        super().__init__(decoder)
        self._announce = announce

    def apply(self, batch: Sequence[tuple[ReceivedMessage, CreateOrder]]) -> Sequence[Decision]:
        """Make orders or rejects."""
        decisions = create_orders(
            [Incoming(message=m, delivery_attempt=r.delivery_attempt) for r, m in batch]
        )
        faultpoint.hit("consumer.before_announce")
        self._announce(
            [m for (_, m), decision in zip(batch, decisions, strict=True) if decision == DONE]
        )
        return decisions

    def facts(self, message: ReceivedMessage) -> BodyFacts | None:
        """Find at the gate what a body does not tell, so that its quarantine row can hold it."""
        told = read_facts(message.body, message.keys)
        if told.reservation_id is None or (told.user_id and told.sku_id and told.valid_until):
            return None
        for activity_id in [told.activity_id] if told.activity_id else serving_activities():
            (found,) = gate().run(
                verbs.reservations(activity_id=activity_id, reservation_ids=[told.reservation_id])
            )
            if found is not None:
                return BodyFacts(
                    reservation_id=found.reservation_id,
                    activity_id=activity_id,
                    sku_id=found.sku_id,
                    user_id=found.user_id,
                    quantity=found.quantity,
                    valid_until=parse_instant(format_instant(found.valid_until_ms)),
                )
        return None


class OrderTimeoutHandler(DecodingHandler[CancelIfUnpaid]):
    """ORDER_TIMEOUT → the conditional cancel. A trigger that changes nothing is done as well."""

    def apply(self, batch: Sequence[tuple[ReceivedMessage, CancelIfUnpaid]]) -> Sequence[Decision]:
        """Cancel what is unpaid and past its expiry."""
        cancel_unpaid([message.order_id for _, message in batch])
        return [DONE] * len(batch)


class ReleaseHandler(DecodingHandler[ReleaseReservation]):
    """INVENTORY_COMPENSATE → the gate, once."""

    def probe(self) -> None:
        """Raise while Redis does not answer: a group that needs it receives nothing then."""
        _probe_gate()

    def apply(
        self, batch: Sequence[tuple[ReceivedMessage, ReleaseReservation]]
    ) -> Sequence[Decision]:
        """Release; what the gate defers is acked too, the scanner drives it while it is DUE."""
        result = release_reservations(m.reservation_id for _, m in batch)
        return [self._decision(m.reservation_id, result.already, result.unknown) for _, m in batch]

    @staticmethod
    def _decision(
        reservation_id: str, already: frozenset[str], unknown: frozenset[str]
    ) -> Decision:
        if reservation_id in unknown:
            return quarantine("RELEASE_NOT_DUE")
        return DUPLICATE if reservation_id in already else DONE


class ProjectionHandler(DecodingHandler[OrderEvent]):
    """ORDER_EVENT → Redis (confirm and status) and the read model."""

    def probe(self) -> None:
        """Raise while Redis does not answer."""
        _probe_gate()

    def apply(self, batch: Sequence[tuple[ReceivedMessage, OrderEvent]]) -> Sequence[Decision]:
        """Confirm, publish, project; each may be repeated. Redis first: buyers wait for it."""
        events = [event for _, event in batch]
        with spans.step("confirm at the gate"):
            projection.project(events)
        with spans.step("project"):
            query.upsert(events)
        return [DONE] * len(batch)


ORDER_CREATE_HANDLER: Final = OrderCreateHandler(
    create_order_decoder, announce=projection.Announcer()
)
ORDER_TIMEOUT_HANDLER: Final = OrderTimeoutHandler(cancel_decoder)
RELEASE_HANDLER: Final = ReleaseHandler(release_decoder)
PROJECTION_HANDLER: Final = ProjectionHandler(order_event_decoder)
