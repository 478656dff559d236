"""`manage.py verify_audit`: proves that nobody changed the audit record."""

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from dlq_admin.audit.verify import verify


class Command(BaseCommand):
    help = (
        "Computes every hash again, looks for gaps, cut tails and rewritten chains. "
        "Exits 1 when something is not as it was written. Reads only."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--ticket", type=int, help="only this ticket's chain; default: all")
        parser.add_argument(
            "--anchor", default="", help="a hash from the log that must still be an anchor's"
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        result = verify(ticket_id=options["ticket"], anchor=options["anchor"])
        if options["ticket"] is not None and not result.chains and result.ok:
            raise CommandError(f"ticket {options['ticket']} has no audit chain: is it the number?")
        if options["json"]:
            self.stdout.write(json.dumps(asdict(result) | {"ok": result.ok}, indent=2))
        else:
            self.stdout.write(
                f"{result.chains} chains, {result.events} events, {result.anchors} anchors"
            )
            for finding in result.findings:
                self.stdout.write(self.style.ERROR(finding.what))
            if result.ok:
                self.stdout.write(self.style.SUCCESS("as it was written"))
        if not result.ok:
            raise SystemExit(1)
