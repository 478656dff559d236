"""One run of the reconciler: look everywhere, keep what was found, repair or ticket it.

Findings are committed before anything is repaired; each repair runs in one transaction with the
change of its audit row, and repeats its check under a lock. A second run changes nothing. Items are
closed when a full look does not find their difference any more.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from django.db import transaction
from django.db.models.functions import Now

from inventory import selectors
from messaging import quarantine
from orders import metrics
from orders.database import fetch
from orders.reconcile.difference import Action, Difference, Outcome, Scope
from orders.reconcile.kinds import FINDERS, KINDS
from orders.reconcile.models import ReconcileFinding, ReconcileRun

log = structlog.get_logger(__name__)

GROUP: Final = "RECONCILE"  # stands in the group's place, as OUTBOX does
_ID_LENGTH: Final = 64
# What was opened while this run looked is not its to close.
_OPEN: Final = """
SELECT q.message_id, q.body FROM messaging_quarantine q
  JOIN orders_reconcile_run r ON r.id = %s AND q.last_at < r.started_at
 WHERE q.consumer_group = %s AND q.status = 'OPEN' AND q.reason = ANY(%b::text[])
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A difference and what was done about it."""

    kind: str
    activity_id: int | None
    subject: str
    detail: str
    action: str
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A finished run. `failed` names the looks that could not be finished, with the reason."""

    run_id: int
    lines: tuple[Line, ...]
    failed: tuple[str, ...]

    def count(self, *actions: Action) -> int:
        """Return how many differences ended so."""
        return sum(line.action in actions for line in self.lines)

    @property
    def changed(self) -> int:
        """How many differences this run did something about."""
        return self.count(Action.REPAIRED, Action.TICKET)


def reconcile(
    *, activity_id: int | None = None, repair: bool = False, started_by: str = "system"
) -> Report:
    """Compare the stores; with `repair` also repair what is provable and ticket the rest.

    Args:
        activity_id: one sale, None for all that left DRAFT.
        repair: else it only looks.
        started_by: for the audit.

    Raises:
        LookupError: there is no such sale.

    Cost: reads all rows of the sales and all holders at their gates; locks one row a repair.
    """
    scope = _scope(activity_id)
    with transaction.atomic(durable=True):
        run = ReconcileRun.objects.create(
            activity_id=activity_id, repair=repair, started_by=started_by
        )
    found, failed = _look(scope)
    with transaction.atomic(durable=True):
        findings = ReconcileFinding.objects.bulk_create(
            ReconcileFinding(
                run=run,
                kind=one.kind,
                activity_id=one.activity_id,
                subject=one.subject[:120],
                detail=one.detail,
            )
            for one in found
        )
    lines = []
    for difference, finding in zip(found, findings, strict=True):
        action, note = _act(difference, finding.pk) if repair else (Action.REPORTED, "")
        metrics.RECONCILE.labels(kind=difference.kind, action=action.value.lower()).inc()
        lines.append(
            Line(
                kind=difference.kind,
                activity_id=difference.activity_id,
                subject=difference.subject,
                detail=difference.detail,
                action=action.value,
                note=note,
            )
        )
    if repair and activity_id is None:
        _close_gone(run.pk, found, failed)
    report = Report(
        run_id=run.pk,
        lines=tuple(lines),
        failed=tuple(f"{name}: {reason}" for name, reason in failed.items()),
    )
    ReconcileRun.objects.filter(pk=run.pk).update(
        finished_at=Now(),
        found=len(lines),
        repaired=report.count(Action.REPAIRED),
        ticketed=report.count(Action.TICKET),
        failed=list(report.failed),
    )
    if lines or failed:
        log.warning(
            "reconcile_found",
            run=run.pk,
            repair=repair,
            kinds=dict(Counter(line.kind for line in lines)),
            actions=dict(Counter(line.action for line in lines)),
            failed=list(report.failed),
        )
    return report


def _scope(activity_id: int | None) -> Scope:
    if activity_id is None:
        sales = selectors.list_activities()
    else:
        sale = selectors.activity_record(activity_id)
        if sale is None:
            raise LookupError(f"there is no activity {activity_id}")
        sales = [sale]
    serving = set(selectors.serving_activities())
    return Scope(
        activity_id=activity_id,
        sales=sales,
        serving=[sale for sale in sales if sale.activity_id in serving],
    )


def _look(scope: Scope) -> tuple[list[Difference], dict[str, str]]:
    """Ask every finder; one that cannot look (Redis is away) does not hide what others see."""
    found: list[Difference] = []
    failed: dict[str, str] = {}
    for name, find in FINDERS.items():
        try:
            found += find(scope)
        except Exception as error:
            log.exception("reconcile_look_failed", finder=name)
            metrics.RECONCILE_LOOK_FAILED.labels(finder=name).inc()
            failed[name] = type(error).__name__
    return found, failed


def _close_gone(run_id: int, found: Sequence[Difference], failed: Container[str]) -> None:
    """Close the items of differences that a full look would have found, and did not find.

    A run over one sale may have opened an item under another id: kind and subject tell.
    """
    reasons = [
        name.upper() for name, kind in KINDS.items() if kind.seen_by and kind.seen_by not in failed
    ]
    there = {(one.kind, one.subject) for one in found}
    gone: dict[str, str] = {}
    for item_id, body in fetch(_OPEN, (run_id, GROUP, reasons)):
        item = json.loads(bytes(body))
        if (item["kind"], item["subject"]) not in there:
            gone[item_id] = item["kind"]
    with transaction.atomic(durable=True):
        quarantine.resolve(group=GROUP, message_ids=list(gone), resolution=Outcome.GONE.value)
    for kind, count in Counter(gone.values()).items():
        metrics.RECONCILE.labels(kind=kind, action=Action.GONE.value.lower()).inc(count)
        log.info("difference_is_gone", run=run_id, kind=kind, items=count)


def _act(difference: Difference, finding_id: int) -> tuple[Action, str]:
    """Repair or ticket one difference, and write on its audit row what was done, in one go."""
    try:
        with transaction.atomic(durable=True):
            action = _repair_or_ticket(difference)
            ReconcileFinding.objects.filter(pk=finding_id).update(action=action)
    except Exception as error:
        log.exception("repair_failed", kind=difference.kind, subject=difference.subject)
        note = type(error).__name__
        ReconcileFinding.objects.filter(pk=finding_id).update(action=Action.FAILED, note=note)
        return Action.FAILED, note
    if action is Action.TICKET:
        log.error(
            "difference_needs_a_person",
            alert="RECONCILE",
            kind=difference.kind,
            subject=difference.subject,
            activity_id=difference.activity_id,
        )
    return action, ""


def _repair_or_ticket(difference: Difference) -> Action:
    repair = KINDS[difference.kind].repair
    item_id = _item_id(difference)
    outcome = repair(difference) if repair else Outcome.UNPROVEN
    if outcome is not Outcome.UNPROVEN:
        quarantine.resolve(group=GROUP, message_ids=[item_id], resolution=outcome.value)
        return Action.REPAIRED if outcome is Outcome.REPAIRED else Action.GONE
    if quarantine.held(group=GROUP, message_ids=[item_id]):
        return Action.KNOWN
    # The same body each time: a difference has one item, with its occurrences.
    body = {
        "kind": difference.kind,
        "rule": KINDS[difference.kind].rule,
        "activity_id": difference.activity_id,
        "subject": difference.subject,
    }
    quarantine.store_in_transaction(
        [
            quarantine.own_entry(
                group=GROUP,
                message_id=item_id,
                reason=difference.kind.upper(),
                keys=difference.subject.split(),
                body=json.dumps(body, sort_keys=True).encode(),
            )
        ]
    )
    return Action.TICKET


def _item_id(difference: Difference) -> str:
    text = f"{difference.kind}:{difference.activity_id or ''}:{difference.subject}"
    if len(text) <= _ID_LENGTH:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:20]
    return f"{difference.kind[:40]}:{digest}"
