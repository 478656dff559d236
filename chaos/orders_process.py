"""The order consumers under search: the real ones, with a mistake that a file switches on.

`python -m chaos.orders_process manage.py run_consumer GROUP`; while the file of CHAOS_BUG_FILE is
there, buyers with an @ in their id are misread (`seckill.demo.mistaken`). Its removal is the fix.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import django

BUG_FILE: Final = "CHAOS_BUG_FILE"


def main() -> None:
    """Consume until SIGTERM."""
    django.setup()
    from django.core.management import execute_from_command_line

    from messaging.broker.base import ReceivedMessage
    from messaging.consumer import Handler
    from messaging.disposition import Decision
    from messaging.facts import BodyFacts
    from messaging.topology import CG_ORDER_CREATE
    from orders.handlers import ORDER_CREATE_HANDLER
    from seckill import bootstrap
    from seckill.demo.mistaken import Mistaken

    bug, mistaken = Path(os.environ[BUG_FILE]), Mistaken()

    class Switched:
        """The handler of the order group, or the mistaken one."""

        def handle(self, messages: Sequence[ReceivedMessage]) -> Sequence[Decision]:
            """Answer each message, in order."""
            now = mistaken if bug.exists() else ORDER_CREATE_HANDLER
            return now.handle(messages)

        def facts(self, message: ReceivedMessage) -> BodyFacts | None:
            """As the real handler."""
            return ORDER_CREATE_HANDLER.facts(message)

    known = bootstrap.handlers

    def with_the_mistake() -> dict[str, Handler]:
        return {**known(), CG_ORDER_CREATE: Switched()}

    bootstrap.handlers = with_the_mistake  # before the command imports it
    execute_from_command_line(sys.argv[1:])


if __name__ == "__main__":
    main()
