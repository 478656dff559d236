"""What a buyer is told at each stage, and that nobody sees another's."""

from dataclasses import replace

import pytest

from inventory import keys
from inventory.contracts import PublicStatus
from orders.cancel_order import cancel_by_user
from orders.selectors import my_orders, my_reservation, order_detail, reservation_status
from tests.fixtures.paid import pay_now
from tests.fixtures.sales import open_sale, run_releases

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def _status(sale, reservation, user=None):
    return reservation_status(
        activity_id=sale.activity_id,
        reservation_id=reservation.reservation_id,
        user_id=user or reservation.user_id,
    )


def _told(sale, reservation):
    view = _status(sale, reservation)
    return (view.status, view.reason, view.version)


def test_the_status_follows_a_reservation_through_its_life():
    sale = open_sale()
    pending = sale.reserve("ann", sent=False)
    queued = sale.reserve("bob")
    assert _told(sale, pending) == (PublicStatus.PENDING, "", 0)
    assert _told(sale, queued) == (PublicStatus.QUEUED, "", 0)

    sale.deliver(queued)
    assert _told(sale, queued) == (PublicStatus.ORDERED, "", 1)
    view = _status(sale, queued)
    assert (view.order_id, view.order_status) == (queued.order_id, "CREATED")
    assert view.expires_at is not None

    cancel_by_user(order_id=queued.order_id, user_id="bob")
    assert _told(sale, queued) == (PublicStatus.CANCELED, "USER", 2)


def test_a_held_reservation_is_delayed_also_when_redis_lost_it(redis_client):
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.hold(reservation)
    assert _told(sale, reservation) == (PublicStatus.DELAYED, "", 0)

    redis_client.flushdb()

    assert _told(sale, reservation) == (PublicStatus.DELAYED, "", 0)
    assert _status(sale, reservation, user="bob") is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"valid_until_ms": 1_700_000_000_000}, (PublicStatus.EXPIRED, "RESERVATION_EXPIRED", 1)),
    ],
)
def test_a_reject_is_told_with_its_reason(change, told):
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(replace(reservation, **change))
    assert _told(sale, reservation) == told


def test_no_final_stock_is_told_as_rejected():
    sale = open_sale(units=1, gate_units=2)
    first, second = sale.reserve("ann"), sale.reserve("bob")
    sale.deliver(first)
    sale.deliver(second)
    assert _told(sale, second) == (PublicStatus.REJECTED, "NO_FINAL_STOCK", 1)


def test_what_is_anothers_does_not_exist():
    sale = open_sale()
    waiting, ordered = sale.reserve("ann"), sale.reserve("bob")
    sale.deliver(ordered)
    assert _status(sale, waiting, user="eve") is None
    assert _status(sale, ordered, user="eve") is None
    assert order_detail(order_id=ordered.order_id, user_id="eve") is None
    assert my_orders(user_id="eve").orders == []
    assert order_detail(order_id=ordered.order_id, user_id="bob").order_id == ordered.order_id


def test_an_unknown_reservation_is_none():
    sale = open_sale()
    other = replace(sale.reserve("ann"), reservation_id="rsv_00000000000000000000000000")
    assert _status(sale, other) is None


def test_mine_is_what_i_hold_else_my_newest_outcome(redis_client):
    sale = open_sale()

    def mine():
        return my_reservation(activity_id=sale.activity_id, sku_id=sale.sku_id, user_id="ann")

    assert mine() is None
    first = sale.reserve("ann")
    assert (mine().reservation_id, mine().status) == (first.reservation_id, PublicStatus.QUEUED)
    sale.deliver(first)
    redis_client.delete(keys.buyers(sale.activity_id, sale.sku_id))
    assert mine().status is PublicStatus.ORDERED
    redis_client.hset(keys.buyers(sale.activity_id, sale.sku_id), "ann", first.reservation_id)
    cancel_by_user(order_id=first.order_id, user_id="ann")
    run_releases()
    assert (mine().reservation_id, mine().status) == (first.reservation_id, PublicStatus.CANCELED)

    second = sale.reserve("ann")
    assert (mine().reservation_id, mine().status) == (second.reservation_id, PublicStatus.QUEUED)


def test_orders_come_in_pages_newest_first():
    sales = [open_sale() for _ in range(5)]
    made = [sale.reserve("ann") for sale in sales]
    for sale, reservation in zip(sales, made, strict=True):
        sale.deliver(reservation)
    pay_now(order_id=made[0].order_id, payment_id="p1")

    seen, cursor = [], ""
    while True:
        page = my_orders(user_id="ann", cursor=cursor, limit=2)
        seen.append([order.order_id for order in page.orders])
        cursor = page.next_cursor
        if not cursor:
            break

    newest_first = sorted((r.order_id for r in made), reverse=True)
    assert seen == [newest_first[:2], newest_first[2:4], newest_first[4:]]
