"""Everything under a run: servers, database, topics, an administrator, processes. All real.

Django may only be imported once `prepare` has put the stack's addresses into the environment.
"""

import io
import os
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from devstack.stack import Event, Stack
from seckill.demo.processes import (
    free_port,
    product_programs,
    run_environment,
    wait_http,
)
from seckill.demo.supervision import Program, StartFailed, Supervisor

ADMIN: Final = "admin"


class Rig:
    """The system of one run.

    Args:
        stack: its servers.
        name: of the folder for configuration, logs and results inside the stack's run folder.
        environment: more variables for all processes.
    """

    def __init__(self, stack: Stack, *, name: str, environment: dict[str, str]) -> None:
        self.stack = stack
        self.folder = stack.folder.path / name
        self.environment: dict[str, str] = {}
        self.port = 0
        self.admin_password = ""
        self.names: tuple[str, ...] = ()
        self._workers = 0
        self._more = environment
        self._before: set[str] | None = None
        self._supervisor: Supervisor | None = None

    @property
    def base_url(self) -> str:
        """Address of the web server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor, once `start` was called."""
        if self._supervisor is None:
            raise StartFailed("no processes were started")
        return self._supervisor

    def start_servers(
        self, *, appendfsync: str | None = None, tell: Callable[[Event], None] | None = None
    ) -> None:
        """Start the servers that are not up."""
        self._before = {
            name for name in self.stack.wanted if self.stack.service(name).process is not None
        }
        if tell is not None:
            self.stack.tell = tell
        self.stack.up(appendfsync=appendfsync)

    def prepare(self) -> None:
        """Migrate, make topics and groups, set the administrator's password. Repeatable.

        From here on Django may be used in this process.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.environment = run_environment(
            self.stack.environment(), folder=self.folder, **self._more
        )
        # Only what the stack and the demo say; the rest is this process' own environment already.
        os.environ.update(self.environment)
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0, interactive=False)
        call_command("grant_roles", stdout=io.StringIO())
        call_command("provision_broker", stdout=io.StringIO())
        self._set_admin_password()

    def start(
        self,
        *,
        port: int = 8000,
        only: Collection[str] | None = None,
        adapt: Callable[[Program], Program] = lambda program: program,
        more: Callable[[tuple[Program, ...]], tuple[Program, ...]] = lambda programs: (),
    ) -> None:
        """Start the processes; the web server takes `port` or the next free one.

        Args:
            port: preferred.
            only: names of the programs to start now; the others wait for `start_program`.
            adapt: changes a program before it starts.
            more: makes further programs of the product's own.

        Raises:
            StartFailed: one of them does not start.
        """
        runtime = as_runtime(self.environment)
        self._supervisor = Supervisor(folder=self.folder, environment=runtime)
        self._supervisor.end_leftovers()
        self.port = free_port(port)
        known = product_programs(port=self.port)
        programs = [
            adapt(replace(program, autostart=only is None or program.name in only))
            for program in map(self._as_owner, known)
        ]
        programs += more(known)
        self.names = tuple(program.name for program in programs)
        self._workers = sum(p.count for p in programs if p.autostart and "manage.py" in p.argv)
        self._supervisor.start(programs)

    def _as_owner(self, program: Program) -> Program:
        """Let the schedules make and drop partitions: only the owner of the tables may."""
        if program.name != "celery":
            return program
        owner = {"DATABASE_URL": self.environment["DATABASE_URL"]}
        return replace(program, environment={**program.environment, **owner})

    def wait_web(self, *, timeout_s: float = 120) -> None:
        """Wait until the web server answers."""
        wait_http(f"{self.base_url}/healthz", timeout_s=timeout_s, check=self.supervisor.check)

    def wait_workers(self, *, timeout_s: float = 120) -> None:
        """Wait until every worker process that was started beats.

        Raises:
            StartFailed: not all of them after `timeout_s`.
        """
        folder = Path(self.environment["SECKILL_HEARTBEAT_DIR"])
        deadline = time.monotonic() + timeout_s
        while len(list(folder.iterdir())) < self._workers:
            self.supervisor.check()
            if time.monotonic() > deadline:
                raise StartFailed(f"not all workers beat: see {self.supervisor.logs}")
            time.sleep(0.1)

    def stop_processes(self) -> None:
        """Stop the product's processes. Safe to call twice."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.stop()

    def stop_servers(self, *, force: bool = False) -> None:
        """Stop the servers that were not up before; safe to call when none was started.

        Args:
            force: by SIGKILL, when nobody needs the data.
        """
        if self._before is None:
            return
        if not self._before:
            self.stack.down(force=force)
            return
        for name in reversed(self.stack.wanted):
            if name not in self._before:
                self.stack.stop(name)

    def _set_admin_password(self) -> None:
        from django.contrib.auth import get_user_model

        users = get_user_model()
        self.admin_password = secrets.token_urlsafe(9)
        user, _ = users.objects.get_or_create(
            username=ADMIN, defaults={"is_staff": True, "is_superuser": True}
        )
        user.set_password(self.admin_password)
        user.save()


def as_runtime(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the database role of the processes, if the stack made one."""
    url = environment.get("RUNTIME_DATABASE_URL") or environment["DATABASE_URL"]
    return {**environment, "DATABASE_URL": url}
