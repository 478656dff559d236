"""`manage.py run_replayer`: execute approved replay batches, in the foreground."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from messaging.exit_codes import ExitCode
from messaging.startup import leave_unless_ready
from messaging.worker import leave, serve
from seckill.bootstrap import replayer


class Command(BaseCommand):
    help = (
        "Send approved replays of dead messages through the outbox, at most a second's worth "
        "ahead, settle and prove them. Runs until SIGTERM; a crash repeats a step, never an effect."
    )
    requires_system_checks = ()  # leave_unless_ready runs those that concern a loop

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="one round, then exit")

    def handle(self, *args: Any, **options: Any) -> None:
        leave_unless_ready("run_replayer", self.stderr)
        code = serve(role="replay", loops=replayer(once=options["once"]))
        if not options["once"]:
            leave(code)
        if code is not ExitCode.OK:
            sys.exit(code)
