"""Paused groups: a row says that a group must not receive; an operator lets it go on.

The quarantine breaker pauses by itself; people pause and resume with `messaging.resume_group`.
Every change is logged with who and why.
"""

import os
import socket
from typing import Final, Protocol

import structlog
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction

from messaging.models import GroupPause
from messaging.topology import group_spec

PERMISSION: Final = "messaging.resume_group"

log = structlog.get_logger(__name__)


class Operator(Protocol):
    """Whoever logs in to the admin."""

    def get_username(self) -> str:
        """Return the name for the audit."""
        ...

    def has_perm(self, perm: str) -> bool:
        """Tell whether a permission was granted."""
        ...


def pause_by_breaker(*, group: str, reason: str) -> None:
    """Pause a group that puts too much into quarantine; the first reason stays. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO messaging_grouppause (consumer_group, reason, paused_by)"
            " VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            [group, reason, f"breaker:{socket.gethostname()}:{os.getpid()}"],
        )
    log.error("group_paused", consumer_group=group, reason=reason, paused_by="breaker")


def pause(*, group: str, reason: str, user: Operator) -> bool:
    """Pause a group on behalf of a person.

    Args:
        group: registry name.
        reason: why; shown to the operator who will resume it.
        user: who; needs `messaging.resume_group`.

    Returns:
        True when it was not paused before.

    Raises:
        PermissionDenied: the user may not.
        KeyError: the registry has no such group.
    """
    _authorise(user)
    with transaction.atomic():
        _, made = GroupPause.objects.get_or_create(
            consumer_group=group_spec(group).name,
            defaults={"reason": reason, "paused_by": user.get_username()},
        )
    log.warning("group_paused", consumer_group=group, reason=reason, paused_by=user.get_username())
    return made


def resume(*, group: str, user: Operator) -> bool:
    """Let a paused group receive again; its members notice within a second.

    Args:
        group: registry name.
        user: who; needs `messaging.resume_group`.

    Returns:
        True when it was paused.

    Raises:
        PermissionDenied: the user may not.
    """
    _authorise(user)
    removed, _ = GroupPause.objects.filter(consumer_group=group).delete()
    if removed:
        log.warning("group_resumed", consumer_group=group, resumed_by=user.get_username())
    return bool(removed)


def is_paused(group: str) -> bool:
    """Tell whether a group is paused. One statement on a tiny table."""
    return GroupPause.objects.filter(consumer_group=group).exists()


def _authorise(user: Operator) -> None:
    if not user.has_perm(PERMISSION):
        raise PermissionDenied(f"{user.get_username()} needs {PERMISSION}")
