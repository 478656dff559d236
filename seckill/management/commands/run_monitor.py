"""`manage.py run_monitor`: the sampler of the live sale monitor."""

import argparse
from contextlib import closing
from typing import Any

from django.core.management.base import BaseCommand

from messaging.startup import leave_unless_ready
from messaging.worker import leave, serve
from seckill.monitor.loop import monitor_loop, sample_once
from seckill.monitor.sampler import Sampler


class Command(BaseCommand):
    help = (
        "Looks at the running sales once a second and keeps what it saw in Redis, for the live "
        "sale monitor (/admin/monitor/). Of several such processes one looks. SIGTERM ends it."
    )
    requires_system_checks = ()  # leave_unless_ready runs those that concern a loop

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="look once and exit")

    def handle(self, *args: Any, **options: Any) -> None:
        leave_unless_ready("run_monitor", self.stderr, needs_broker=False)
        if options["once"]:
            with closing(Sampler(name="once")) as sampler:
                done = sample_once(sampler, "once")
            self.stdout.write("sampled" if done else "another process samples")
            return
        leave(serve(role="monitor", loops=[monitor_loop()]))
