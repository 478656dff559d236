"""Batches: their list, the approval queue, and the monitor of one with all that may be done."""

from collections.abc import Mapping
from typing import Any, Final

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from dlq_admin import permissions, replay
from dlq_admin.pages import charts, shell
from dlq_admin.pages.acts import (
    Act,
    ActForm,
    ReasonForm,
    Table,
    missing_permission,
    see_other,
    send,
    shown,
)
from dlq_admin.pages.exposure import shown_items, whole_items
from dlq_admin.pages.guard import action, action_by_name, page
from dlq_admin.pages.keyset import number, page_of
from dlq_admin.replay import consent
from dlq_admin.replay import selectors as reads
from dlq_admin.replay.selectors import BatchView
from dlq_admin.selectors.batches import batch_page, waiting_for_approval
from dlq_admin.states import BATCH_ACTIVE, BATCH_ALLOWED, BATCH_ENDED, BATCH_SENDS, BatchStatus

_ITEMS: Final = 200


class RequestForm(ActForm):
    """Nothing to fill in."""


class SignedForm(ActForm):
    """For the plan that is shown, with one's own password."""

    plan_hash = forms.CharField(max_length=64, widget=forms.HiddenInput)
    password = forms.CharField(
        max_length=128,
        strip=False,
        label="Your password",
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )


class ApproveForm(SignedForm):
    """A yes to the plan."""

    comment = forms.CharField(
        max_length=500, required=False, widget=forms.Textarea(attrs={"rows": 2})
    )


class BreakGlassForm(SignedForm):
    """Why the plan cannot wait."""

    reason = forms.CharField(
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2}),
        label="Why it cannot wait",
        help_text="Whoever approves it afterwards reads this.",
    )
    field_order = ("reason", "password")


class RateForm(ActForm):
    """The live rate."""

    rate = forms.IntegerField(min_value=0, max_value=1_000, label="Messages a second")


def _may_go(to: BatchStatus, *, otherwise: str) -> Any:
    """Return why a batch cannot go to a state; empty when it can."""

    def blocked(batch: BatchView, user: object) -> str:
        return "" if to in BATCH_ALLOWED[batch.status] else otherwise

    return blocked


def _does_not_wait(batch: BatchView, user: object) -> str:
    waits = batch.status is BatchStatus.PENDING_APPROVAL
    return "" if waits else "it does not wait for approval"


ACTS: Final = Table(
    acts=(
        Act(
            name="request",
            label="Ask for approval",
            permission=permissions.REQUEST_REPLAY,
            form=RequestForm,
            call=replay.request_approval,
            done="It waits for approval now; the plan is frozen.",
            blocked=_may_go(BatchStatus.PENDING_APPROVAL, otherwise="only a plan can be asked for"),
            help="The plan is frozen from here on. Somebody else must approve it in time.",
        ),
        Act(
            name="approve",
            label="Approve",
            permission=permissions.APPROVE_REPLAY,
            form=ApproveForm,
            call=replay.approve,
            done="Your approval is recorded.",
            blocked=lambda batch, user: reads.why_not_approve(batch_id=batch.batch_id, user=user),
            help="Binds you to exactly this plan. Nobody approves what he planned or edited.",
        ),
        Act(
            name="reject",
            label="Reject",
            permission=permissions.APPROVE_REPLAY,
            form=ReasonForm,
            call=replay.reject,
            done="Rejected; its messages may be planned again.",
            blocked=_does_not_wait,
            danger=True,
        ),
        Act(
            name="break-glass",
            label="Break the glass",
            permission=permissions.BREAK_GLASS,
            form=BreakGlassForm,
            call=replay.break_glass,
            done="It starts now. On-call and the incident leads were told.",
            blocked=lambda batch, user: reads.why_not_break_glass(
                batch_id=batch.batch_id, user=user
            ),
            danger=True,
            help="Starts it before its approval. Other people approve it afterwards, within an"
            " hour; until then the ticket cannot end.",
        ),
        Act(
            name="rate",
            label="Change the rate",
            permission=permissions.PAUSE_REPLAY,
            form=RateForm,
            call=replay.set_rate,
            done="The worker takes the new rate within a second.",
            blocked=lambda batch, user: "" if batch.status in BATCH_ACTIVE else "it does not run",
            help="Up to the approved cap; 0 holds it without a pause.",
        ),
        Act(
            name="pause",
            label="Pause",
            permission=permissions.PAUSE_REPLAY,
            form=ReasonForm,
            call=replay.pause,
            done="Paused: nothing more is sent; what is in flight is settled.",
            blocked=_may_go(BatchStatus.PAUSED, otherwise="it does not run"),
        ),
        Act(
            name="resume",
            label="Resume",
            permission=permissions.RESUME_REPLAY,
            form=ReasonForm,
            call=replay.resume,
            done="It goes on.",
            blocked=lambda batch, user: (
                "" if batch.status is BatchStatus.PAUSED else "it is not paused"
            ),
        ),
        Act(
            name="abort",
            label="Kill",
            permission=permissions.ABORT_REPLAY,
            form=ReasonForm,
            call=replay.abort,
            done="Ended: what was not sent is cancelled.",
            blocked=_may_go(BatchStatus.ABORTED, otherwise="it has ended"),
            danger=True,
            help="What was not sent is cancelled; what was is settled and proven.",
        ),
    )
)


@page(permissions.VIEW_CONSOLE)
def batches(request: HttpRequest) -> HttpResponse:
    """List batches."""
    status = request.GET.get("status", "")
    if status not in ("", "active", *(one.value for one in BatchStatus)):
        status = ""
    rows = page_of(
        request,
        lambda before, limit: batch_page(before=number(before), limit=limit, status=status),
        key=lambda row: row.id,
    )
    context = shell.context(
        request, here="batches", title="Batches", page=rows, status=status,
        choices=("active", "PENDING_APPROVAL", "PLANNED", "COMPLETED", "COMPLETED_WITH_FAILURES"),
    )  # fmt: skip
    return TemplateResponse(request, "dlq_admin/batches.html", context)


@page(permissions.VIEW_CONSOLE)
def approvals(request: HttpRequest) -> HttpResponse:
    """Show what waits for somebody's yes."""
    context = shell.context(
        request, here="approvals", title="Approval queue", rows=waiting_for_approval()
    )
    part = request.headers.get("X-Console-Part")
    name = "dlq_admin/approvals_part.html" if part else "dlq_admin/approvals.html"
    return TemplateResponse(request, name, context)


@page(permissions.VIEW_CONSOLE)
def batch(request: HttpRequest, batch_id: int) -> HttpResponse:
    """Show one batch; a part of it is read again while it runs."""
    if request.headers.get("X-Console-Part"):
        return TemplateResponse(request, "dlq_admin/batch_part.html", _live(request, batch_id))
    return _show(request, batch_id)


@action(permissions.VIEW_PAYLOAD_FULL)
def reveal(request: HttpRequest, batch_id: int) -> HttpResponse:
    """Show all of what was edited, once; the look is recorded first.

    Whoever approves an edit must be able to read it, hidden values, too.
    """
    return _show(request, batch_id, whole=True)


@action_by_name(ACTS.by_name)
def act(request: HttpRequest, batch_id: int, name: str) -> HttpResponse:
    """Carry out one act on a batch."""
    chosen = ACTS.by_name[name]
    form = chosen.form(request.POST)
    sent = send(request, chosen, form, batch_id=batch_id)
    if sent.redirect:
        return see_other(reverse("dlq:batch", args=[batch_id]))
    return _show(request, batch_id, bound={name: form}, status=sent.status)


def _show(
    request: HttpRequest,
    batch_id: int,
    *,
    bound: Mapping[str, ActForm] | None = None,
    status: int = 200,
    whole: bool = False,
) -> HttpResponse:
    context = _live(request, batch_id, whole=whole)
    found: BatchView = context["batch"]
    acts = shown(
        ACTS.acts,
        request=request,
        subject=found,
        url=lambda one: reverse("dlq:batch-act", args=[batch_id, one.name]),
        bound=bound or {},
        initial={
            "approve": {"plan_hash": found.plan_hash},
            "break-glass": {"plan_hash": found.plan_hash},
            "rate": {"rate": found.live_rate},
        },
    )
    return TemplateResponse(
        request,
        "dlq_admin/batch.html",
        shell.context(request, here="batches", title=f"Batch {batch_id}", acts=acts) | context,
        status=status,
    )


def _live(request: HttpRequest, batch_id: int, *, whole: bool = False) -> dict[str, Any]:
    """Read the part of the page that is read again while the batch runs."""
    found = reads.batch(batch_id)
    if found is None:
        raise Http404(f"no batch {batch_id}")
    after = number(request.GET.get("after", ""), otherwise=-1)
    items = reads.items(batch_id, after_position=after, limit=_ITEMS)
    seen = whole_items(request, found, items) if whole else shown_items(request, items)
    counted = reads.progress_of(batch_id)
    people, lead = consent.needed(batch_id)
    sends = found.status in BATCH_SENDS
    limits = [found.rate_cap, found.live_rate, found.governor_rate]
    return {
        "page_url": reverse("dlq:batch", args=[batch_id]),
        "batch": found,
        "items": seen,
        "whole": whole,
        "hides": any(
            one.edit_diff != all_.edit_diff for one, all_ in zip(seen, items, strict=True)
        ),
        "reveal_why": missing_permission(request, permissions.VIEW_PAYLOAD_FULL),
        "after": items[-1].position if len(items) == _ITEMS else None,
        "progress": counted,
        "approvals": reads.approvals(batch_id),
        "broken": reads.glass_of(batch_id=batch_id),
        "missing": consent.missing(batch_id),
        "people": people,
        "lead": lead,
        "ended": found.status in BATCH_ENDED,
        "rate": min(limit for limit in limits if limit is not None) if sends else 0,
        "bar": charts.progress(
            [
                (counted.good, "good"),
                (counted.failed, "bad"),
                (counted.skipped, "warn"),
                (counted.in_flight + counted.processed, ""),
            ],
            total=counted.total,
            label=f"{counted.good} of {counted.total} verified, {counted.failed} failed",
        ),
    }
