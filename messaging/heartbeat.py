"""The heartbeat of a worker: a row for each loop every second, and a file for the supervisor.

The row carries state, lag and rates, so that other processes (sender, sweep, preflight, console)
read them without asking this one. A database that is away costs heartbeats, never the worker.
"""

import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from django.conf import settings
from django.db import Error as DatabaseFailure
from django.db import close_old_connections, connection

from messaging.pulse import Pulse

BEAT_S: Final = 1.0
_HOST: Final = socket.gethostname()[:40]

# Write the rows of one process; the first beat also makes them.
_BEAT: Final = """
INSERT INTO messaging_heartbeat
    (worker_id, role, "group", build, version, started_at, beat_at, state, detail)
SELECT worker_id, %s, grp, %s, %s, now() - %s * interval '1 second', now(), state, detail::jsonb
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]) AS row(worker_id, grp, state, detail)
ON CONFLICT (worker_id) DO UPDATE SET
    role = excluded.role, "group" = excluded."group", build = excluded.build,
    version = excluded.version, started_at = excluded.started_at, -- host:pid may be reused
    beat_at = excluded.beat_at, state = excluded.state, detail = excluded.detail
"""

# Rows of workers that ended long ago are no news to anybody.
_FORGET: Final = """
DELETE FROM messaging_heartbeat WHERE role = %s AND beat_at < now() - interval '1 day'
"""

log = structlog.get_logger(__name__)


class Heartbeats:
    """A thread that writes the heartbeats of one process.

    Args:
        role: what the process is.
        members: (name, consumer group or empty, pulse) of each loop.
    """

    def __init__(self, *, role: str, members: Sequence[tuple[str, str, Pulse]]) -> None:
        self._role = role
        self._members = members
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._failing = False
        folder = settings.SECKILL_HEARTBEAT_DIR
        self._file = Path(folder) / f"{role}-{os.getpid()}.json" if folder else None

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Beat once more, with the last states, and end."""
        self._stop.set()
        self._thread.join(2.0)

    def beat(self) -> None:
        """Write file and rows now. One statement; a database failure is logged once, not raised."""
        snapshots = [(name, group, *pulse.snapshot()) for name, group, pulse in self._members]
        self._write_file({name: state.value for name, _, state, _ in snapshots})
        try:
            close_old_connections()
            with connection.cursor() as cursor:
                cursor.execute(
                    _BEAT,
                    [
                        self._role,
                        settings.SECKILL_BUILD,
                        getattr(settings, "SECKILL_VERSION", ""),
                        time.monotonic() - self._started,
                        [worker_id(self._role, name) for name, _, _, _ in snapshots],
                        [group for _, group, _, _ in snapshots],
                        [state.value for _, _, state, _ in snapshots],
                        [msgspec.json.encode(detail).decode() for _, _, _, detail in snapshots],
                    ],
                )
        except DatabaseFailure as error:
            connection.close()
            if not self._failing:
                log.warning("heartbeat_not_written", role=self._role, error=type(error).__name__)
            self._failing = True
        else:
            self._failing = False

    def _run(self) -> None:
        try:
            self._forget()
            self.beat()
            while not self._stop.wait(BEAT_S):
                self.beat()
            self.beat()
        finally:
            connection.close()
            if self._file:
                self._file.unlink(missing_ok=True)

    def _forget(self) -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute(_FORGET, [self._role])
        except DatabaseFailure:
            connection.close()

    def _write_file(self, states: dict[str, Any]) -> None:
        if self._file is None:
            return
        content = {"pid": os.getpid(), "role": self._role, "at": time.time(), "loops": states}
        try:
            temporary = self._file.with_suffix(".tmp")
            temporary.write_bytes(msgspec.json.encode(content))
            temporary.replace(self._file)
        except OSError as error:
            log.warning("heartbeat_file_not_written", error=str(error))


def worker_id(role: str, name: str) -> str:
    """Return the id of a loop of this process: host:pid:role/loop."""
    return f"{_HOST}:{os.getpid()}:{role}/{name}"[:120]
