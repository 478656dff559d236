"""A sale, from each status to each: whichever service is asked, only an allowed move happens."""

import contextlib

import pytest
from django.utils import timezone

from inventory import activities, operations
from inventory.errors import OperationRefused
from inventory.models import Activity
from inventory.states import ACTIVITY_ALLOWED, ActivityStatus

DRAFT, WARM, OPEN, PAUSED, CLOSED, SETTLED = ActivityStatus


def _move(sale, source: ActivityStatus, target: ActivityStatus) -> None:
    ask = {"activity_id": sale.activity_id, "reason": "t"}
    if target is SETTLED:
        activities.mark_settled(activity_id=sale.activity_id, version=sale.row.version)
    elif target is OPEN:
        asked = operations.request_resume if source is PAUSED else operations.request_open
        asked(**ask)
    else:
        asked = {
            WARM: operations.warm_up,
            PAUSED: operations.request_pause,
            CLOSED: operations.request_close,
        }[target]
        asked(**ask)


@pytest.mark.parametrize("target", [WARM, OPEN, PAUSED, CLOSED, SETTLED])
@pytest.mark.parametrize("source", list(ActivityStatus))
def test_each_move(new_draft, source, target) -> None:
    sale = new_draft()
    if source is not DRAFT:
        operations.warm_up(activity_id=sale.activity_id)
    opened_at = None if source in {DRAFT, WARM} else timezone.now()
    Activity.objects.filter(pk=sale.activity_id).update(status=source, opened_at=opened_at)
    version = sale.row.version
    allowed = target in ACTIVITY_ALLOWED[source]

    refused = False
    try:
        _move(sale, source, target)
    except OperationRefused:
        refused = True

    assert sale.row.status == (target if allowed else source)
    assert refused is (not allowed and (source, target) != (WARM, WARM))
    assert sale.row.version == version + allowed


@pytest.mark.parametrize("source", list(ActivityStatus))
def test_a_stop_ends_whatever_was_begun(new_draft, source) -> None:
    sale = new_draft()
    if source is not DRAFT:
        operations.warm_up(activity_id=sale.activity_id)
    Activity.objects.filter(pk=sale.activity_id).update(status=source)
    with contextlib.suppress(OperationRefused):
        operations.request_stop(activity_id=sale.activity_id, reason="t")
    assert sale.row.status == (source if source in {DRAFT, SETTLED} else CLOSED)
