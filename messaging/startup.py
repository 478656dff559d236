"""What must be true before a loop starts; what is wrong is said in one line."""

import socket
import sys
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import Error, run_checks
from django.db import DEFAULT_DB_ALIAS, connections
from django.db import Error as DatabaseFailure
from django.db.migrations.executor import MigrationExecutor

from messaging.exit_codes import ExitCode

_CHECK_TAGS = ("seckill", "messaging", "models", "database")
_CONNECT_S = 3.0


class Writer(Protocol):
    """Standard error, or what a command has in its place."""

    def write(self, text: str, /) -> object:
        """Write a line."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class StartupProblem:
    """Why this process must not start."""

    code: ExitCode
    text: str


def find_problem(*, needs_broker: bool = True) -> StartupProblem | None:
    """Look for the first thing that makes a start pointless.

    Args:
        needs_broker: whether the loops talk to the broker.

    Returns:
        The problem, or None when the loops may start. The database connection is closed again.
    """
    return _checks() or _migrations() or (_broker() if needs_broker else None)


def leave_unless_ready(name: str, stderr: Writer, *, needs_broker: bool = True) -> None:
    """Say the first problem in one line and end the process with its code; return without one.

    Args:
        name: of the command, before the line.
        stderr: where the line goes.
        needs_broker: whether the loops talk to the broker.
    """
    problem = find_problem(needs_broker=needs_broker)
    if problem:
        stderr.write(f"{name}: {problem.text}\n")
        sys.exit(problem.code)


def _checks() -> StartupProblem | None:
    errors = [found for found in run_checks(tags=_CHECK_TAGS) if isinstance(found, Error)]
    if not errors:
        return None
    text = "; ".join(f"{error.msg} ({error.id})" for error in errors)
    return StartupProblem(code=ExitCode.CHECKS_FAILED, text=f"system checks failed: {text}")


def _migrations() -> StartupProblem | None:
    database = connections[DEFAULT_DB_ALIAS]
    try:
        executor = MigrationExecutor(database)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseFailure as error:
        where = f"{database.settings_dict['HOST']}:{database.settings_dict['PORT']}"
        return StartupProblem(
            code=ExitCode.DATABASE_UNREACHABLE,
            text=f"no database at {where} (DATABASE_URL): {str(error).splitlines()[0]}",
        )
    finally:
        database.close()
    if not missing:
        return None
    names = ", ".join(f"{migration.app_label}.{migration.name}" for migration, _ in missing[:3])
    return StartupProblem(
        code=ExitCode.MIGRATIONS_MISSING,
        text=f"{len(missing)} migrations are missing ({names}, …): run manage.py migrate",
    )


def _broker() -> StartupProblem | None:
    if settings.ROCKETMQ_ENDPOINTS == "memory":
        return None
    first = settings.ROCKETMQ_ENDPOINTS.replace(",", ";").split(";")[0]
    address = urlsplit(first if "//" in first else f"//{first}")
    try:
        host, port = address.hostname or "", address.port or 8081
        with socket.create_connection((host, port), timeout=_CONNECT_S):
            return None
    except (OSError, ValueError) as error:
        return StartupProblem(
            code=ExitCode.BROKER_UNREACHABLE,
            text=f"no broker proxy at {first} (ROCKETMQ_ENDPOINTS): {error}",
        )
