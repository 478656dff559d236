"""Forms of what may be done to a ticket."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django import forms
from django.contrib.auth.models import User as UserModel
from django.utils import timezone

from dlq_admin import tickets
from dlq_admin.errors import GuardRefused
from dlq_admin.pages.acts import REASON, ActForm
from dlq_admin.states import Cause, Disposition

if TYPE_CHECKING:
    from django.contrib.auth.models import User

_CAUSES: Final = {
    Cause.TRANSIENT: "Transient: a dependency was away and is back",
    Cause.HANDLER_BUG: "Handler bug: our code, needs a new build",
    Cause.POISON_FORMAT: "Poison: the bytes cannot be read",
    Cause.BAD_DATA: "Bad data: contradicts what is stored",
    Cause.CONFIGURATION: "Configuration",
    Cause.UNKNOWN: "Unknown",
}
_DISPOSITIONS: Final = {
    Disposition.REPLAY: "Replay: send again, same id",
    Disposition.REPLAY_EDITED: "Replay edited: free fields changed",
    Disposition.COMPENSATE: "Compensate: reject, give the unit back",
    Disposition.DISCARD: "Discard: no effect",
}


class ApproveDiscardForm(ActForm):
    """A yes to the discard of the messages that are shown."""

    messages_sha256 = forms.CharField(max_length=64, required=False, widget=forms.HiddenInput)


class ClassifyForm(ActForm):
    """Why they died, and what shall become of them."""

    cause = forms.ChoiceField(choices=[(key.value, text) for key, text in _CAUSES.items()])
    disposition = forms.ChoiceField(
        choices=[(key.value, text) for key, text in _DISPOSITIONS.items()], label="What to do"
    )
    analysis = forms.CharField(
        max_length=2_000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="What was found, for the audit record.",
    )

    def arguments(self) -> dict[str, Any]:
        """Return codes as what they are."""
        data = super().arguments()
        return data | {
            "cause": Cause(data["cause"]),
            "disposition": Disposition(data["disposition"]),
        }


class ReadyForm(ActForm):
    """The fix, when there is one."""

    fix_reference = forms.CharField(
        max_length=200,
        required=False,
        label="Fix",
        help_text="Commit, change or configuration; empty when nothing needs one.",
    )
    fix_build = forms.IntegerField(
        min_value=0,
        max_value=2**31 - 1,
        required=False,
        label="First build that has it",
        help_text="Every live consumer of the group must report it or a later one.",
    )


class AssignForm(ActForm):
    """Somebody else."""

    assignee = forms.CharField(max_length=150, label="User name")


class ParkForm(ActForm):
    """For how long, and for what."""

    minutes = forms.IntegerField(
        min_value=1, max_value=24 * 60, initial=30, label="For so many minutes"
    )
    reason = REASON


class MergeForm(ActForm):
    """Which ticket takes over."""

    into_id = forms.IntegerField(min_value=1, label="Into ticket")
    reason = REASON


def assign(*, ticket_id: int, assignee: str, user: "User") -> None:
    """Hand a ticket to somebody named by his user name."""
    found = UserModel.objects.filter(username=assignee).first()
    if found is None:
        raise GuardRefused(f"there is no user {assignee}")
    tickets.assign(ticket_id=ticket_id, assignee_id=found.pk, user=user)


def park(*, ticket_id: int, minutes: int, reason: str, user: "User") -> None:
    """Let a ticket wait for so many minutes from now."""
    until = timezone.now() + timedelta(minutes=minutes)
    tickets.park(ticket_id=ticket_id, until=until, reason=reason, user=user)
