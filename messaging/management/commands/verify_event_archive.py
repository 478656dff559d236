"""`manage.py verify_event_archive`: are the exported files what was written?"""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from messaging import event_export


class Command(BaseCommand):
    help = (
        "Check every exported file against the chained manifest; exits 1 on a difference, and when "
        "there is no manifest."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", nargs="?", help="default: SECKILL_ARCHIVE_DIR")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = options["folder"] or settings.SECKILL_ARCHIVE_DIR
        if not folder:
            raise CommandError("name a folder, or set SECKILL_ARCHIVE_DIR")
        problems = event_export.verify(Path(folder))
        for problem in problems:
            self.stderr.write(problem)
        if problems:
            raise SystemExit(1)
        count = len(event_export.files(Path(folder)))  # no problem: just those of the manifest
        self.stdout.write(f"{count} files checked, every file is as it was written")
