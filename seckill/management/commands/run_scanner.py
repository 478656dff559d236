"""`manage.py run_scanner`: the safety nets, one thread for each job."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand

from messaging.startup import leave_unless_ready
from messaging.worker import leave, serve
from orders.scan.runner import JOBS, loop_of, run_all_once
from seckill.governor.loop import governor_loop
from seckill.monitor.loop import monitor_loop


class Command(BaseCommand):
    help = (
        "Runs the scanner's jobs: pending (sends uncertain messages again), sweep (settles what "
        "has no outcome), overdue (cancels unpaid orders), release (gives units back), gate_ops "
        "(drives operators' changes), payments, refunds and webhooks (settle what the provider "
        "has not answered clearly), void (ends the orders of voided sales), mark (notices "
        "a lost gate and older copies), held (ends what no ticket ended), gauges (numbers for the "
        "metrics). SIGTERM finishes what is in flight; a second signal ends at once."
    )
    requires_system_checks = ()  # leave_unless_ready runs those that concern a loop

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--job",
            action="append",
            choices=sorted(JOBS),
            help="run only this job (may be given several times); default: all",
        )
        parser.add_argument(
            "--governor",
            action="store_true",
            help="govern and sample for the monitor as well (see run_governor, run_monitor)",
        )
        parser.add_argument("--once", action="store_true", help="run each job once and exit")

    def handle(self, *args: Any, **options: Any) -> None:
        # Most jobs send nothing: without a broker they are needed all the more.
        leave_unless_ready("run_scanner", self.stderr, needs_broker=False)
        names = options["job"] or sorted(JOBS)
        if options["once"]:
            for name, count in run_all_once(names).items():
                self.stdout.write(f"{name}: {count}")
            return
        loops = [loop_of(name) for name in names]
        if options["governor"]:
            loops += [governor_loop(), monitor_loop()]
        leave(serve(role="scanner", loops=loops))
