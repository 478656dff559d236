"""`manage.py calibrate_budget`: how many order transactions at a time the database bears."""

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from inventory.selectors import list_activities
from inventory.states import ActivityStatus
from messaging.exit_codes import ExitCode
from seckill.capacity.calibration import Calibration, climb
from seckill.capacity.knee import Step, find_knee, is_over
from seckill.governor.budget import SHARE_FOR_ORDERS, budget
from seckill.management.numbers import above_zero

_STEPS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 240)
_BAR: Final = 40


class Command(BaseCommand):
    help = (
        "Raises the number of order transactions at a time step by step, on tables of its own, "
        "until throughput stops rising; prints the curve and what to set. Takes a minute and loads "
        "the database: never during a sale."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--seconds", type=above_zero(float), default=3.0, help="of each step (default 3)"
        )
        parser.add_argument(
            "--most", type=int, default=64, help="highest concurrency to try (default 64)"
        )
        parser.add_argument("--batch", type=int, default=settings.SECKILL_BATCH_MAX)
        parser.add_argument("--skus", type=int, default=1, help="hot stock rows (default 1)")
        parser.add_argument("--instances", type=int, default=2, help="order-create processes")
        parser.add_argument("--json", action="store_true", help="print JSON instead of the curve")
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
        parser.add_argument("--force", action="store_true", help="also while a sale is open")

    def handle(self, *args: Any, **options: Any) -> None:
        steps = [step for step in _STEPS if step <= options["most"]]
        if min(options["batch"], options["skus"], options["instances"], options["most"]) < 1:
            raise CommandError("numbers start at 1", returncode=ExitCode.CONFIGURATION)
        if options["dry_run"]:
            self.stdout.write(
                f"would make schema seckill_calibration, run {steps} transactions at a time for "
                f"{options['seconds']:g} s each, {options['batch']} orders in each, and drop it"
            )
            return
        sales = [a.name for a in list_activities() if a.status is ActivityStatus.OPEN]
        if sales and not options["force"]:
            raise CommandError(f"a sale is open ({sales[0]}): wait for its end, or --force")
        quiet = options["json"]
        with Calibration(_dsn(), batch=options["batch"], skus=options["skus"]) as calibration:
            measured = climb(
                calibration,
                steps=steps,
                seconds=options["seconds"],
                tell=lambda step: None if quiet else self._tell(step),
                over=is_over,
            )
        knee = find_knee(measured)
        share = budget(
            safe_transactions=knee.concurrency,
            instances=options["instances"],
            most_per_instance=knee.concurrency,
        )
        if quiet:
            self.stdout.write(
                json.dumps(
                    {
                        "steps": [asdict(step) for step in measured],
                        "safe_transactions": knee.concurrency,
                        "budget": share.total,
                        "workers_per_instance": share.per_instance,
                    },
                    indent=1,
                )
            )
            return
        self.stdout.write(plot(measured, knee))
        self.stdout.write(
            f"set SECKILL_SAFE_TRANSACTIONS={knee.concurrency}: {SHARE_FOR_ORDERS:.0%} of it "
            f"({share.total}) are the consumers' budget, {share.per_instance} for each of "
            f"{options['instances']} processes (SECKILL_CONSUMER_WORKERS_MAX)"
        )

    def _tell(self, step: Step) -> None:
        self.stdout.write(
            f"{step.concurrency:>4} at a time: {step.orders_per_s:>8.0f} orders/s, "
            f"p95 {step.p95_ms:.0f} ms, p99 {step.p99_ms:.0f} ms, {step.retries} retries"
        )


def plot(steps: list[Step], knee: Step) -> str:
    """Return throughput and p99 by concurrency as bars; the knee is marked."""
    best = max(step.orders_per_s for step in steps) or 1.0
    slowest = max(step.p99_ms for step in steps) or 1.0
    lines = ["", f"{'':>6}orders/s{'':{_BAR}}p99 ms"]
    for step in steps:
        rate = "█" * max(1, round(_BAR * step.orders_per_s / best))
        late = "▒" * max(1, round(_BAR / 2 * step.p99_ms / slowest))
        mark = " ◀ knee" if step is knee else ""
        lines.append(
            f"{step.concurrency:>4}  {rate:<{_BAR}} {step.orders_per_s:>6.0f}  "
            f"{late:<{_BAR // 2}} {step.p99_ms:>6.0f}{mark}"
        )
    return "\n".join([*lines, ""])


def _dsn() -> str:
    """Return the connection string of the configured database."""
    connection.ensure_connection()
    raw: Any = connection.connection
    return f"{raw.info.dsn} password={raw.info.password}"
