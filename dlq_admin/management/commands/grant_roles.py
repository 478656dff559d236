"""`manage.py grant_roles`: rights of the database roles, after every migrate."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from dlq_admin.audit.roles import grant_roles, statements


class Command(BaseCommand):
    help = (
        "Gives the runtime and auditor roles of the database their rights. Idempotent; run it as "
        "the owner after every migrate. Roles that do not exist are left out."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--runtime", default="seckill_runtime", help="role of the processes")
        parser.add_argument("--auditor", default="seckill_auditor", help="role that only reads")
        parser.add_argument("--dry-run", action="store_true", help="print the statements")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["dry_run"]:
            for kind in ("runtime", "auditor"):
                for statement in statements(kind):
                    self.stdout.write(statement.format(role=options[kind]) + ";")
            return
        for done in grant_roles(runtime=options["runtime"], auditor=options["auditor"]):
            self.stdout.write(f"{done.kind}: {done.role} {'granted' if done.exists else 'absent'}")
