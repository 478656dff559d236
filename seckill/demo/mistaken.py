"""The mistake that `bin/demo --incident` is about: build 1 misreads e-mail addresses as ids."""

from collections.abc import Sequence

from messaging.broker.base import ReceivedMessage
from messaging.disposition import Decision, quarantine
from messaging.facts import BodyFacts, read_facts
from orders.handlers import ORDER_CREATE_HANDLER


class Mistaken:
    """Gives up on buyers with an @ in their id, hands everybody else to the real handler."""

    def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
        """Answer each message, in order."""
        bad = ["@" in (read_facts(message.body).user_id or "") for message in messages]
        good = [m for m, is_bad in zip(messages, bad, strict=True) if not is_bad]
        answers = iter(ORDER_CREATE_HANDLER.handle(good) if good else ())
        return [
            quarantine("BUYER_ID_UNREADABLE", "ValueError: unexpected '@'")
            if is_bad
            else next(answers)
            for is_bad in bad
        ]

    def facts(self, message: ReceivedMessage) -> BodyFacts | None:
        """As the real handler."""
        return ORDER_CREATE_HANDLER.facts(message)
