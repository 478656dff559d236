"""`manage.py rebuild_gate ACTIVITY`: makes a sale's gate anew from what PostgreSQL knows."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from inventory.errors import GateUnavailable, OperationRefused, RebuildOvertaken
from inventory.management.confirm import require_yes
from orders.errors import RebuildWaits
from orders.rebuild.gate import Preview, Rebuilt, preview, rebuild_gate


class Command(BaseCommand):
    help = (
        "Rebuilds the gate of a whole sale: closes it, waits until nothing is in flight, reads"
        " PostgreSQL in one snapshot and writes stock and buyers anew. The only way back after"
        " Redis lost data. May be repeated and interrupted: it starts from the top. Scanner and"
        " consumers must run, or it waits for ever. Exits 1 when it is refused, 75 when Redis did"
        " not answer, another run overtook this one or it has to wait: run it again; 130 when it"
        " was interrupted: the gate stays closed until it has run."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("activity", type=int, help="number of the sale")
        parser.add_argument(
            "--note-loss",
            action="store_true",
            help="Redis lost data though keys are there (keys that are gone are found by itself)",
        )
        parser.add_argument(
            "--force",
            action="store_true",
            help="after a loss, do not wait until the newest reservation that may have been lost"
            " has ended: its order may then take a unit that the gate promises again",
        )
        parser.add_argument("--reason", default="manage.py rebuild_gate", help="for the audit")
        parser.add_argument("--dry-run", action="store_true", help="only say what it would meet")
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def handle(self, *args: Any, **options: Any) -> None:
        activity_id = options["activity"]
        try:
            found = preview(activity_id)
            self._tell(found)
            if options["dry_run"]:
                return
            if not options["yes"]:
                require_yes(f"Close and rebuild the gate of activity {activity_id}?")
            self._report(
                rebuild_gate(
                    activity_id=activity_id,
                    note_loss=options["note_loss"],
                    force=options["force"],
                    reason=options["reason"],
                    progress=self.stdout.write,
                )
            )
        except OperationRefused as error:
            raise CommandError(str(error)) from error
        except GateUnavailable as error:
            raise CommandError(
                f"{error}: run it again when Redis answers", returncode=75
            ) from error
        except (RebuildOvertaken, RebuildWaits) as error:
            raise CommandError(str(error), returncode=75) from error
        except KeyboardInterrupt:
            raise CommandError(
                "interrupted: the gate stays closed until rebuild_gate has run", returncode=130
            ) from None

    def _tell(self, found: Preview) -> None:
        self.stdout.write(
            f"{found.name!r} is {found.status}, its gate {found.condition};"
            f" {found.pending} unsent, {found.open} without an outcome, {found.held} held"
        )
        if found.loss_noted:
            self.stdout.write("a loss is noted: only this command opens the gate again")
        if found.unfinished_run:
            self.stdout.write(f"run {found.unfinished_run} is unfinished: this one overtakes it")

    def _report(self, done: Rebuilt) -> None:
        self.stdout.write(f"run {done.run.number} DONE: the gate is {done.status}")
        for one in done.found.broken:
            self.stdout.write(f"BROKEN {one.reservation_id} of {one.user_id}: {one.reason}")
        for reservation_id in done.found.unreadable:
            self.stdout.write(f"UNREADABLE held row of {reservation_id}: not counted")
