"""What a stack remembers in its run folder: ports, passwords, secrets, pids, and the lock."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devstack import ports
from devstack.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SERVICES = ("postgres", "redis", "namesrv", "broker", "proxy", "provider")
SECRET_NAMES = (
    "SECKILL_SECRET_KEY",
    "SECKILL_JWT_SECRET",
    "SECKILL_WEBHOOK_SECRET",
    "PAYMENT_PROVIDER_KEY",
)
LOCK_TIMEOUT_S = 180


@dataclass(kw_only=True)
class Settings:
    """The content of ``stack.json``."""

    ports: dict[str, int] = field(default_factory=dict)
    postgres_password: str = ""
    role_passwords: dict[str, str] = field(default_factory=dict)
    """Of the database roles that own nothing: runtime and auditor."""
    postgres_home: str = ""
    """Folder of data (and of a copy of the programs) outside the run folder; empty when inside."""
    appendfsync: str = "always"


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """The paths inside one run folder."""

    path: Path

    @property
    def logs(self) -> Path:
        """Folder of the services' output."""
        return self.path / "logs"

    def log(self, service: str) -> Path:
        """Return the file with the output of ``service``."""
        return self.logs / f"{service}.log"

    def pid_file(self, service: str) -> Path:
        """Return the pid record of ``service``."""
        return self.path / "pids" / f"{service}.json"

    @property
    def settings_file(self) -> Path:
        """The stack's memory."""
        return self.path / "stack.json"

    @property
    def secrets_file(self) -> Path:
        """Generated secrets of the application."""
        return self.path / "secrets.json"

    @property
    def mqadmin(self) -> Path:
        """The generated wrapper of RocketMQ's admin tool."""
        return self.path / "mqadmin"

    def create(self) -> None:
        """Make the folder."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(exist_ok=True)

    def load(self) -> Settings:
        """Return the remembered settings; the default ones before the first start."""
        known = {item.name for item in fields(Settings)}
        content = read_json(self.settings_file)
        settings = Settings(**{key: value for key, value in content.items() if key in known})
        settings.ports = ports.completed(settings.ports)
        return settings

    def save(self, settings: Settings) -> None:
        """Remember the settings; only the owner may read them, there is a password inside."""
        write_private_json(self.settings_file, asdict(settings))

    def secrets(self) -> dict[str, str]:
        """Return the application's secrets, made at the first call and kept."""
        known = read_json(self.secrets_file)
        missing = [name for name in SECRET_NAMES if not known.get(name)]
        if missing:
            self.create()
            known |= {name: secrets.token_urlsafe(48) for name in missing}
            write_private_json(self.secrets_file, known)
        return {name: str(known[name]) for name in SECRET_NAMES}

    @contextlib.contextmanager
    def locked(self, *, waiting: Callable[[str], None] | None = None) -> Iterator[None]:
        """Hold the lock that keeps two commands from changing one stack at the same time."""
        self.create()
        with (self.path / "lock").open("a") as stream:
            if not _try_lock(stream.fileno()):
                if waiting:
                    waiting("another bin/stack command is at work on this stack, waiting for it")
                deadline = time.monotonic() + LOCK_TIMEOUT_S
                while not _try_lock(stream.fileno()):
                    if time.monotonic() > deadline:
                        raise StackError(
                            f"another bin/stack has held the lock for {LOCK_TIMEOUT_S} s:"
                            f" see who with fuser {self.path / 'lock'}"
                        )
                    time.sleep(0.05)
            yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in ``path``, {} when there is no such file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        raise StackError(f"{path} is damaged: delete it, or run bin/stack reset") from None
    return dict(content)


def write_private_json(path: Path, content: dict[str, Any]) -> None:
    """Replace ``path`` atomically by ``content``; only the owner can read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(content, stream, indent=2)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    scratch.replace(path)
