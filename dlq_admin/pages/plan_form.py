"""Planning from a ticket: the chosen messages, or everything of it that is open."""

from typing import TYPE_CHECKING, Any

from django import forms

from dlq_admin import replay
from dlq_admin.errors import GuardRefused
from dlq_admin.pages.acts import REASON, ActForm
from dlq_admin.replay import PlanResult
from dlq_admin.replay.plan import CAP, DEFAULT_RATE
from dlq_admin.states import Disposition

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class PlanForm(ActForm):
    """What to do with which messages, how fast."""

    which = forms.ChoiceField(
        choices=[
            ("all", f"everything open now, at most {CAP}"),
            ("chosen", "those that are ticked in the list"),
        ],
        initial="all",
        widget=forms.RadioSelect,
        label="Messages",
    )
    disposition = forms.ChoiceField(
        choices=[
            (Disposition.REPLAY.value, "Replay: send again, same id"),
            (Disposition.COMPENSATE.value, "Compensate: reject, give the unit back"),
            (Disposition.DISCARD.value, "Discard: no effect; nothing may be held"),
        ],
        label="What",
    )
    rate_cap = forms.IntegerField(
        min_value=1, max_value=1_000, initial=DEFAULT_RATE, label="At most, messages a second"
    )
    canary_size = forms.IntegerField(
        min_value=1, max_value=5, initial=1, label="Canary",
        help_text="So many must be verified before the rest goes.",
    )  # fmt: skip
    extension_s = forms.IntegerField(
        required=False, min_value=0, max_value=86_400, initial=0, label="Extension, seconds",
        help_text="Lets expired held reservations become orders; an incident lead must approve.",
    )  # fmt: skip
    reason = REASON

    def chosen(self) -> list[int]:
        """Return the ticked messages' keys."""
        found = self.data.getlist("messages") if hasattr(self.data, "getlist") else []
        return [int(one) for one in found if one.isascii() and one.isdigit() and len(one) <= 18]

    def clean(self) -> dict[str, Any] | None:
        """Ticked ones must be ticked."""
        data = super().clean() or {}
        if data.get("which") == "chosen" and not self.chosen():
            self.add_error("which", "none is ticked in the list of the Evidence tab")
        return data

    def arguments(self) -> dict[str, Any]:
        """Add the ticked messages, and the form's key so that a plan is made once."""
        data = self.cleaned_data
        return super().arguments() | {
            "messages": self.chosen(),
            "idempotency_key": data["submission"],
            "disposition": Disposition(data["disposition"]),
            "extension_s": data["extension_s"] or 0,
        }


def make_plan(
    *, ticket_id: int, which: str, messages: list[int], user: "User", **wish: Any
) -> PlanResult:
    """Plan with what the form says."""
    if which == "all":
        return replay.plan_all(ticket_id=ticket_id, user=user, **wish)
    if len(messages) > CAP:
        raise GuardRefused(f"a batch has at most {CAP} messages")
    return replay.plan(ticket_id=ticket_id, message_pks=messages, user=user, **wish)
