"""The order consumer of build 1, with the mistake that `bin/demo --incident` is about.

Somebody made it read e-mail addresses as buyers' ids "more strictly": it gives up on every buyer
whose id has an @. Everything else is the real consumer; build 2 is `manage.py run_consumer`.
"""

import sys
from collections.abc import Sequence

import django


def main() -> None:
    """Consume the order group with the mistake until SIGTERM."""
    django.setup()
    from messaging.broker import broker
    from messaging.broker.base import ReceivedMessage
    from messaging.consumer import run_loop
    from messaging.disposition import Decision, quarantine
    from messaging.facts import BodyFacts, read_facts
    from messaging.pulse import Pulse
    from messaging.startup import find_problem
    from messaging.topology import CG_ORDER_CREATE, group_spec
    from messaging.worker import Loop, StopSignal, leave, serve
    from orders.handlers import ORDER_CREATE_HANDLER

    class Mistaken:
        """Gives up on buyers with an @, hands everybody else on."""

        def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
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
            return ORDER_CREATE_HANDLER.facts(message)

    problem = find_problem()
    if problem:
        sys.stderr.write(f"faulty_consumer: {problem.text}\n")
        sys.exit(problem.code)
    spec = group_spec(CG_ORDER_CREATE)

    def run(stop: StopSignal, pulse: Pulse) -> None:
        receiver = broker().receiver(group=spec.name, topic=spec.topic, tags=spec.tags)
        run_loop(spec, Mistaken(), receiver, stop, pulse=pulse)

    leave(serve(role="consumer", loops=[Loop(name="order-create", group=spec.name, run=run)]))


if __name__ == "__main__":
    main()
