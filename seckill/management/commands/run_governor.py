"""`manage.py run_governor`: look, decide, publish, once a second."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from messaging.exit_codes import ExitCode
from messaging.startup import leave_unless_ready
from messaging.worker import leave, serve
from seckill.governor.loop import governor_loop
from seckill.monitor.loop import monitor_loop


class Command(BaseCommand):
    help = (
        "Govern until SIGTERM: looks at database, gate and consumers once a second, decides how "
        "much is let in and how hard each group works, publishes it for SECKILL_GOVERNOR_TTL_MS "
        "and stores what changed. Several may run: one leads, the others stand by. With "
        "SECKILL_GOVERNOR=off in the other processes nobody obeys: a way to watch it first. It "
        "samples for the live sale monitor, too (see run_monitor)."
    )
    requires_system_checks = ()  # leave_unless_ready runs those that concern a loop

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="one decision, then exit")

    def handle(self, *args: Any, **options: Any) -> None:
        leave_unless_ready("run_governor", self.stderr, needs_broker=False)
        once = options["once"]
        loops = [governor_loop(once=once)] if once else [governor_loop(), monitor_loop()]
        code = serve(role="governor", loops=loops)
        if not once:
            leave(code)
        if code is not ExitCode.OK:
            sys.exit(code)
