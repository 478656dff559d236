"""`manage.py replay`: plan the replay of a ticket's dead messages and ask for its approval."""

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse

from dlq_admin import access, permissions, replay
from dlq_admin.dry_run.run import look
from dlq_admin.errors import DlqAdminError
from dlq_admin.models.ticket import Ticket
from dlq_admin.replay.plan import CAP, DEFAULT_RATE, selected
from dlq_admin.states import Disposition
from dlq_admin.tickets.messages import open_messages


class Command(BaseCommand):
    help = (
        "Plans the replay of a ticket's open messages, oldest first, and asks for approval. "
        "Nothing is sent before another person has approved it in the admin."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("ticket", type=int, help="number of the ticket")
        parser.add_argument("--user", required=True, help="who asks; needs the desk's permissions")
        parser.add_argument("--reason", default="", help="for approvers; --dry-run needs none")
        parser.add_argument(
            "--message", type=int, action="append", default=[], metavar="PK",
            help="only this message; may be given several times; default: all that are open",
        )  # fmt: skip
        parser.add_argument(
            "--rate", type=int, default=DEFAULT_RATE, help="messages a second at most (%(default)s)"
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="say what each message would come to"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"], is_active=True).first()
        if user is None:
            raise CommandError(f"there is no active user {options['user']!r}")
        try:
            if options["dry_run"]:
                self._look(user, options)
            else:
                self._plan(user, options)
        except PermissionDenied as error:
            raise CommandError(f"{user} lacks the permission {error}") from None
        except DlqAdminError as error:
            raise CommandError(str(error)) from None

    def _look(self, user: User, options: dict[str, Any]) -> None:
        access.require(user, permissions.PLAN_REPLAY)
        ticket_id = options["ticket"]
        if not Ticket.objects.filter(pk=ticket_id).exists():
            raise CommandError(f"there is no ticket {ticket_id}")
        chosen = options["message"] or open_messages(ticket_id).values_list("pk", flat=True)[:CAP]
        found, excluded = selected(ticket_id, list(chosen))
        seen = look(found, disposition=Disposition.REPLAY, extension_s=0)
        verdicts = Counter((e.judgement.verdict, e.judgement.reason) for e in seen.values())
        for (verdict, reason), count in sorted(verdicts.items()):
            self.stdout.write(f"{count:>5}  {verdict}  {reason}".rstrip())
        self._tell_left_out(excluded)
        self.stdout.write(f"{len(found)} open messages looked at; nothing was written")

    def _plan(self, user: User, options: dict[str, Any]) -> None:
        wish: dict[str, Any] = {
            "disposition": Disposition.REPLAY,
            "user": user,
            "reason": options["reason"],
            "rate_cap": options["rate"],
        }
        if options["message"]:
            planned = replay.plan(
                ticket_id=options["ticket"], message_pks=options["message"], **wish
            )
        else:
            planned = replay.plan_all(ticket_id=options["ticket"], **wish)
        self._tell_left_out(planned.excluded)
        replay.request_approval(batch_id=planned.batch_id, user=user)
        self.stdout.write(
            f"batch {planned.batch_id}: {planned.items} of {planned.matched} messages, plan "
            f"{planned.plan_hash[:12]}, waits for approval until {planned.expires_at:%H:%M:%S} at "
            f"{reverse('dlq:batch', args=[planned.batch_id])}"
        )

    def _tell_left_out(self, excluded: Mapping[str, int]) -> None:
        for reason, count in sorted(excluded.items()):
            self.stdout.write(f"left out: {count} {reason}")
