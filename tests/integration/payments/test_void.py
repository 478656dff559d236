"""ACTIVITY_VOIDED: two people, then everybody is freed and paid back."""

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.exceptions import PermissionDenied

from inventory import operations, verbs
from inventory.errors import OperationRefused
from inventory.gate import gate
from inventory.operations import request_open
from orders.errors import VoidRefused
from orders.payments.attempts import start_payment
from orders.scan.void import VoidJob
from orders.void import approve_void, request_void, stop_voided, withdraw_void
from tests.fixtures.payments import assert_money_exact, settle_all
from tests.fixtures.sales import open_sale, run_releases
from tests.fixtures.sql import one, rows

pytestmark = pytest.mark.django_db
PRICE = 1999


def _person(name, *permissions):
    user = get_user_model().objects.create_user(name)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return get_user_model().objects.get(pk=user.pk)


@pytest.fixture
def asker(committed):
    return _person("ada", "request_void", "approve_void")


@pytest.fixture
def approver(committed):
    return _person("bea", "approve_void")


@pytest.fixture
def sale(sandbox):
    return open_sale(units=5, price_cents=PRICE)


def _voided(sale):
    return one("SELECT voided_at FROM inventory_activity WHERE id = %s", sale.activity_id)


def test_a_voided_sale_cancels_refunds_and_rejects(sandbox, sale, asker, approver):
    unpaid, paid, in_flight = sale.reserve_all(["u", "p", "f"])
    sale.deliver(unpaid, paid)
    start_payment(order_id=paid.order_id, user_id="p")
    void_id = request_void(activity_id=sale.activity_id, reason="wrong price", user=asker)
    assert VoidJob().run_once() == 0
    assert _voided(sale) is None

    approve_void(void_id=void_id, user=approver)
    sale.deliver(in_flight)
    assert VoidJob().run_once() == 2
    assert VoidJob().run_once() == 0
    settle_all()
    run_releases()

    assert _voided(sale) is not None
    assert rows("SELECT status, cancel_reason FROM orders_order ORDER BY user_id") == [
        ("REFUNDED", ""),
        ("CANCELED", "OPERATOR"),
    ]
    assert sale.outcome(in_flight)[:2] == ("REJECTED", "ACTIVITY_VOIDED")
    assert (sale.available(), sale.gate_stock(), sale.holders()) == (5, 5, {})
    assert rows("SELECT requested_by, approved_by FROM orders_void") == [("ada", "bea")]
    assert rows("SELECT reason, requested_by, note FROM orders_refund") == [
        ("ACTIVITY_VOIDED", "bea", "wrong price")
    ]
    assert one("SELECT status FROM inventory_activity") == "CLOSED"
    assert assert_money_exact(sandbox).refunded == PRICE


def test_a_sale_whose_approver_died_before_the_stop_is_stopped_once(
    sale, asker, approver, monkeypatch
):
    void_id = request_void(activity_id=sale.activity_id, reason="wrong price", user=asker)

    def die(**_):
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(operations, "request_stop", die)
        with pytest.raises(SystemExit):
            approve_void(void_id=void_id, user=approver)
    assert one("SELECT status FROM inventory_activity") == "OPEN"
    assert _voided(sale) is not None

    VoidJob().run_once()
    assert stop_voided() == 0

    assert one("SELECT status FROM inventory_activity") == "CLOSED"
    assert rows("SELECT kind, status, reason FROM inventory_gateoperation") == [
        ("STOP", "DONE", f"void {void_id}: wrong price")
    ]
    state = gate().run(verbs.gate_state(activity_id=sale.activity_id, sku_id=sale.sku_id))
    assert state is not None
    assert state.status == "CLOSED"


def test_it_takes_two(sale, asker, approver):
    void_id = request_void(activity_id=sale.activity_id, reason="r", user=asker)

    with pytest.raises(PermissionDenied):
        approve_void(void_id=void_id, user=asker)  # his own request
    with pytest.raises(PermissionDenied):
        request_void(activity_id=sale.activity_id, reason="r", user=approver)
    with pytest.raises(VoidRefused):
        request_void(activity_id=sale.activity_id, reason="again", user=asker)
    assert _voided(sale) is None

    approve_void(void_id=void_id, user=approver)
    with pytest.raises(VoidRefused):
        approve_void(void_id=void_id, user=approver)
    with pytest.raises(VoidRefused):
        withdraw_void(void_id=void_id, user=asker)
    with pytest.raises(OperationRefused):
        request_open(activity_id=sale.activity_id, reason="no way back")


def test_a_withdrawn_request_stays_as_a_record(sale, asker, approver):
    first = request_void(activity_id=sale.activity_id, reason="r", user=asker)
    withdraw_void(void_id=first, user=approver)

    with pytest.raises(VoidRefused):
        approve_void(void_id=first, user=approver)
    request_void(activity_id=sale.activity_id, reason="after all", user=asker)

    assert one("SELECT count(*) FROM orders_void") == 2
    assert _voided(sale) is None


def test_bad_requests(sale, asker):
    with pytest.raises(VoidRefused):
        request_void(activity_id=0, reason="r", user=asker)
    with pytest.raises(ValueError, match="reason"):
        request_void(activity_id=sale.activity_id, reason=" ", user=asker)
    assert one("SELECT count(*) FROM orders_void") == 0
