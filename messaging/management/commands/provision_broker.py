"""Makes the broker equal to the registry in `messaging/topology.py`, and proves it."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from messaging.provision import differences, provision
from messaging.provision_remoting import AdminError


class Command(BaseCommand):
    help = (
        "Create the topics, groups and dead letter topics of the registry on every broker of the "
        "cluster and verify them. Safe to run again; nothing is deleted or made smaller."
    )
    requires_system_checks = ("messaging",)

    def add_arguments(self, parser: ArgumentParser) -> None:
        mode = parser.add_mutually_exclusive_group()
        mode.add_argument("--dry-run", action="store_true", help="print what would change")
        mode.add_argument("--check", action="store_true", help="like --dry-run, exit 1 if anything")

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(
            f"broker of {settings.ROCKETMQ_NAMESRV or '(ROCKETMQ_NAMESRV is empty)'}, "
            f"cluster {settings.ROCKETMQ_CLUSTER}, prefix {settings.SECKILL_TOPIC_PREFIX}"
        )
        try:
            if options["dry_run"] or options["check"]:
                self._show(strict=options["check"])
            else:
                provision(tell=self.stdout.write)
        except AdminError as error:
            raise CommandError(str(error)) from None

    def _show(self, *, strict: bool) -> None:
        found = differences()
        for difference in found:
            self.stdout.write(str(difference))
        if found and strict:
            raise CommandError(
                f"{len(found)} differences: run manage.py provision_broker", returncode=1
            )
        if not found:
            self.stdout.write("the broker has everything as wanted")
