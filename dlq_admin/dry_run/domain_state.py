"""The rows beside the message: what the stores say of its purchase, for the ticket's page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlq_admin import access, permissions
from dlq_admin.dry_run import dead as dead_messages
from dlq_admin.errors import NotFound
from orders import dead_letters
from orders.story.records import Part
from orders.story.tell import story_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainState:
    """What is known of a purchase. `parts` are tables: inbox, ledger, messages, effects."""

    reservation_id: str
    headline: str
    facts: Sequence[tuple[str, Any]]
    ids: Sequence[tuple[str, str]]
    gate: Sequence[tuple[str, str]]
    parts: Sequence[Part]
    notes: Sequence[str]
    held: bool
    body_error: str


def domain_state(*, message_pk: int, user: "User") -> DomainState:
    """Return the rows of the purchase that a dead message speaks of.

    Args:
        message_pk: the dead message.
        user: needs `dlq_admin.view_console`.

    Raises:
        PermissionDenied: the user may not.
        NotFound: there is no such message.

    Cost: about fifteen look-ups by key and two round trips to Redis.
    """
    access.require(user, permissions.VIEW_CONSOLE)
    dead = dead_messages.load([message_pk]).get(message_pk)
    if dead is None:
        raise NotFound(f"there is no dead message {message_pk}")
    story = story_of(dead.reservation_id, with_payments=False) if dead.reservation_id else None
    held = dead_letters.held_row(dead.reservation_id) if dead.reservation_id else None
    return DomainState(
        reservation_id=dead.reservation_id,
        headline=story.headline if story else "no store knows of a purchase",
        facts=story.facts if story else (),
        ids=story.ids if story else (),
        gate=story.gate if story else (),
        parts=story.parts if story else (),
        notes=story.notes if story else (),
        held=held is not None,
        body_error=dead_letters.body_error(group=dead.group, body=dead.body),
    )
