"""`manage.py run_dlq_drain`: bring dead messages to the desk, in the foreground."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from messaging.broker import broker
from messaging.exit_codes import ExitCode
from messaging.startup import leave_unless_ready
from messaging.worker import leave, serve
from seckill.bootstrap import dlq_drain


class Command(BaseCommand):
    help = (
        "Read every dead letter topic and our own quarantine rows into the DLQ console: stored "
        "first, acked then. Runs until SIGTERM; a crash repeats a step and stores nothing twice."
    )
    requires_system_checks = ()  # leave_unless_ready runs those that concern a loop

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="one receive a topic, then exit")

    def handle(self, *args: Any, **options: Any) -> None:
        leave_unless_ready("run_dlq_drain", self.stderr)
        code = serve(role="dlq_drain", loops=dlq_drain(broker(), once=options["once"]))
        if not options["once"]:
            leave(code)
        if code is not ExitCode.OK:
            sys.exit(code)
