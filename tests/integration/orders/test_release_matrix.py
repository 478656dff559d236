"""The release of a reservation in PostgreSQL, from each state to each."""

import pytest

from orders.cancel_order import cancel_by_user
from orders.release import release_reservations
from orders.states import RELEASE_ALLOWED, ReleaseState
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import execute, one, rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

BOOKED = (
    "SELECT available, (SELECT count(*) FROM messaging_outbox WHERE tag = 'RELEASE_RESERVATION'),"
    " (SELECT count(*) FROM inventory_stockledger) FROM inventory_stock"
)


@pytest.mark.parametrize("target", [ReleaseState.DUE, ReleaseState.DONE])
@pytest.mark.parametrize("source", list(ReleaseState))
def test_each_move(source, target):
    """Whatever ends the order makes it DUE, the driver makes it DONE; both from one state only."""
    sale = open_sale(units=3)
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    execute(
        "UPDATE orders_reservation SET release_state = %s,"
        " release_due_at = CASE WHEN %s <> 'NONE' THEN now() END,"
        " released_at = CASE WHEN %s = 'DONE' THEN now() END",
        *([source.value] * 3),
    )
    before = rows(BOOKED)
    allowed = target in RELEASE_ALLOWED[source]

    if target is ReleaseState.DONE:
        release_reservations([reservation.reservation_id])
    elif allowed:
        cancel_by_user(order_id=reservation.order_id, user_id="ann")
    else:
        with pytest.raises(RuntimeError, match="without a release"):
            cancel_by_user(order_id=reservation.order_id, user_id="ann")

    expected = target if allowed else source
    assert one("SELECT release_state FROM orders_reservation") == expected.value
    ended = allowed and target is ReleaseState.DUE
    assert sale.order_status(reservation) == ("CANCELED" if ended else "CREATED")
    assert (rows(BOOKED) == before) is not ended
    freed = allowed and target is ReleaseState.DONE
    assert sale.holders() == ({} if freed else {"ann": reservation.reservation_id})


@pytest.mark.parametrize("source", list(ReleaseState))
def test_nothing_leads_back_to_none(source):
    assert ReleaseState.NONE not in RELEASE_ALLOWED[source]
