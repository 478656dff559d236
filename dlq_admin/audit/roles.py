"""Database roles: what runtime and auditor may do. Source: docs/operations/audit.md."""

import re
from dataclasses import dataclass
from typing import Final

from django.db import connection, transaction

from dlq_admin.sql import sql_file

KINDS: Final = ("runtime", "auditor")
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_EXISTS: Final = "SELECT 1 FROM pg_roles WHERE rolname = %s"


@dataclass(frozen=True, kw_only=True, slots=True)
class Granted:
    """What was done for a role."""

    kind: str
    role: str
    exists: bool


def grant_roles(*, runtime: str, auditor: str) -> list[Granted]:
    """Give the roles their rights, in one transaction; run as the owner, after every migrate.

    Args:
        runtime: name of the processes' role.
        auditor: name of the reading role.

    Returns:
        One line a role; a role that does not exist is left out (create it first: its password is
        yours).

    Raises:
        ValueError: a name that no role of ours can have.
    """
    done = []
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        for kind, role in zip(KINDS, (runtime, auditor), strict=True):
            if not _NAME.fullmatch(role):
                raise ValueError(f"no name of a role: {role!r}")
            cursor.execute(_EXISTS, [role])
            exists = cursor.fetchone() is not None
            if exists:
                for statement in statements(kind):
                    cursor.execute(statement.format(role=f'"{role}"'))
            done.append(Granted(kind=kind, role=role, exists=exists))
    return done


def statements(kind: str) -> list[str]:
    """Return the statements of one kind of role, from the file."""
    parts = dict(
        re.findall(r"^-- name: (\w+)\n(.*?)(?=^-- name|\Z)", sql_file("roles.sql"), _FLAGS)
    )
    return [text.strip() for text in parts[kind].split(";") if text.strip()]


_FLAGS: Final = re.MULTILINE | re.DOTALL
