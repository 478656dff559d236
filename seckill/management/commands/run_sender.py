"""`manage.py run_sender`: publish the outbox, one or more threads a lane."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from messaging.broker import broker
from messaging.exit_codes import ExitCode
from messaging.sender import sender_loops
from messaging.startup import leave_unless_ready
from messaging.worker import StopSignal, leave, serve


class Command(BaseCommand):
    help = (
        "Publish outbox rows until SIGTERM: no further send begins, what was sent is marked, "
        "the rest is given back, exit 0 within 10 s; a second signal exits at once."
    )
    requires_system_checks = ()  # leave_unless_ready runs those that concern a loop

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="one round a lane, then exit")

    def handle(self, *args: Any, **options: Any) -> None:
        leave_unless_ready("run_sender", self.stderr)
        stop = StopSignal()
        loops = sender_loops(broker(), stop, once=options["once"])
        code = serve(role="sender", loops=loops, stop=stop)
        if not options["once"]:
            leave(code)
        if code is not ExitCode.OK:
            sys.exit(code)
