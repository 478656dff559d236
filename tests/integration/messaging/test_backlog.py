"""What the sender tells about itself: every gauge can be read on the real database."""

import pytest

from messaging import selectors, sender
from messaging.outbox import LANE_COMPENSATE, LANE_EVENTS, LANE_TIMEOUTS
from tests.integration.messaging.messages import add, event, timeout_message

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_backlog_counts_each_lane_apart() -> None:
    add([event(), event(), timeout_message()])

    backlog = {lane.lane: lane for lane in selectors.outbox_backlog()}

    assert {lane: found.rows for lane, found in backlog.items()} == {
        LANE_COMPENSATE: 0,
        LANE_EVENTS: 2,
        LANE_TIMEOUTS: 1,
    }
    assert backlog[LANE_COMPENSATE].oldest_s == 0
    assert 0 <= backlog[LANE_EVENTS].oldest_s < 60


def test_all_gauges_of_the_sender_are_read() -> None:
    add([event()])
    sender._read_gauges()
