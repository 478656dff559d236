"""`manage.py grant_roles`: rights of the database roles, after every migrate."""

from argparse import ArgumentParser
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from dlq_admin.audit.roles import grant_roles, statements

_DEFAULTS: Final = {"runtime": "seckill_runtime", "auditor": "seckill_auditor"}


class Command(BaseCommand):
    help = (
        "Gives the runtime and auditor roles of the database their rights. Idempotent; run it as "
        "the owner after every migrate. A role that does not exist is left out, and an error when "
        "it was named."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--runtime", help=f"role of the processes (default {_DEFAULTS['runtime']})"
        )
        parser.add_argument(
            "--auditor", help=f"role that only reads (default {_DEFAULTS['auditor']})"
        )
        parser.add_argument("--dry-run", action="store_true", help="print the statements")

    def handle(self, *args: Any, **options: Any) -> None:
        roles = {kind: options[kind] or default for kind, default in _DEFAULTS.items()}
        if options["dry_run"]:
            for kind, role in roles.items():
                for statement in statements(kind):
                    self.stdout.write(statement.format(role=role) + ";")
            return
        try:
            granted = grant_roles(**roles)
        except ValueError as error:
            raise CommandError(str(error)) from None
        for done in granted:
            self.stdout.write(f"{done.kind}: {done.role} {'granted' if done.exists else 'absent'}")
        unknown = [done.role for done in granted if options[done.kind] and not done.exists]
        if unknown:
            raise CommandError(f"there is no role {', '.join(unknown)}")
