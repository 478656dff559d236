"""Operators' acts in the admin: cancel, refund, try again, void: who may, and what happens."""

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orders.models import PaymentAttempt, Refund
from orders.payments.port import Answer, Outcome, ProviderState
from orders.payments.sandbox import SandboxProvider
from orders.void import request_void
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import execute, one, rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

WITHHOLD = {"reason": "fraud", "units": "withhold"}


def staff(*codenames, name="op"):
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def sale():
    return open_sale(units=5)


@pytest.fixture
def unpaid(sale):
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    return reservation


@pytest.fixture
def paid(sale):
    """A paid order, and the captured attempt that paid it."""
    reservation = sale.reserve("bob")
    sale.deliver(reservation)
    now = timezone.now()
    attempt = PaymentAttempt.objects.create(
        attempt_id="pay_00000000000000000000000001", order_id=reservation.order_id, attempt_no=1,
        provider="sandbox", provider_payment_id="prov-1", amount_cents=1999, currency="EUR",
        status="SUCCEEDED", submitted_at=now, settled_at=now,
    )  # fmt: skip
    execute(
        "UPDATE orders_order SET status = 'PAID', paid_at = now(), payment_id = %s"
        " WHERE order_id = %s",
        attempt.pk,
        reservation.order_id,
    )
    return reservation


@pytest.fixture
def failed(paid):
    return Refund.objects.create(
        refund_id="rfd_00000000000000000000000001", attempt_id="pay_00000000000000000000000001",
        order_id=paid.order_id, provider="sandbox", provider_key="old-key", amount_cents=1999,
        currency="EUR", reason="OPERATOR", status="FAILED", submitted_at=timezone.now(),
        settled_at=timezone.now(), submit_count=1, error_class="REFUSED",
    )  # fmt: skip


def url(name, key):
    return reverse(f"admin:orders_{name}", args=[key])


def text_of(response):
    return response.content.decode()


def test_an_operator_cancels_after_seeing_what_will_happen(sale, unpaid):
    client = staff("view_order", "view_reservationrow", "cancel_order")
    page = url("order_cancel", unpaid.order_id)
    for way_in in ("orders_story", "orders_order_change"):
        assert page in text_of(client.get(reverse(f"admin:{way_in}", args=[unpaid.order_id])))

    shown = text_of(client.get(page))
    for fact in (unpaid.order_id, "ann", "CREATED", "becomes CANCELED", "Its unit of SKU"):
        assert fact in shown, fact
    assert sale.order_status(unpaid) == "CREATED"
    answer = client.post(page, WITHHOLD)

    assert (answer.status_code, sale.order_status(unpaid)) == (302, "CANCELED")
    assert "is cancelled" in text_of(client.get(answer["location"]))
    assert one("SELECT withheld FROM inventory_stock WHERE sku_id = %s", sale.sku_id) == 1
    assert rows("SELECT object_id, change_message FROM django_admin_log") == [
        (unpaid.order_id, "Cancelled, units withheld: fraud")
    ]
    story = text_of(client.get(reverse("admin:orders_story", args=[unpaid.order_id])))
    assert "By op" in story
    assert page not in story


@pytest.mark.parametrize("units", ["restock", "withhold"])
def test_an_operator_refunds_with_or_without_restock(sale, paid, units):
    client = staff("view_order", "refund_order")
    page = url("order_refund", paid.order_id)
    shown = text_of(client.get(page))
    assert "19.99 EUR go back to the buyer" in shown
    assert "checked" not in shown  # where the units go is said, not presumed
    assert sale.order_status(paid) == "PAID"

    assert client.post(page, {"reason": "broken", "units": units}).status_code == 302

    assert sale.order_status(paid) == "REFUNDING"
    assert rows("SELECT status, restock, requested_by, note FROM orders_refund") == [
        ("DUE", units == "restock", "op", "broken")
    ]


def test_a_form_sent_twice_acts_once_and_a_refusal_keeps_what_was_typed(sale, paid, unpaid):
    client = staff("view_order", "refund_order", "cancel_order")
    refund = url("order_refund", paid.order_id)
    assert client.post(refund, WITHHOLD).status_code == 302

    again = client.post(refund, {"reason": "typed with care", "units": "withhold"})

    assert again.status_code == 200
    assert "the order is REFUNDING" in text_of(again)
    assert "typed with care" in text_of(again)
    assert 'value="withhold" required id="id_units_1" checked' in text_of(again)
    assert one("SELECT count(*) FROM orders_refund") == 1
    # Neither may a paid order be cancelled, nor an unpaid one refunded.
    wrong = client.post(url("order_cancel", paid.order_id), WITHHOLD)
    assert "the order is REFUNDING" in text_of(wrong)
    wrong = client.post(url("order_refund", unpaid.order_id), WITHHOLD)
    assert "the order is CREATED" in text_of(wrong)
    for missing in ({"reason": "", "units": "restock"}, {"reason": "why"}, {"reason": " "}):
        answer = client.post(url("order_cancel", unpaid.order_id), missing)
        assert "This field is required" in text_of(answer)
    assert sale.order_status(unpaid) == "CREATED"
    assert one("SELECT count(*) FROM django_admin_log") == 0


def test_a_failed_refund_is_tried_again(failed, monkeypatch, settings):
    settings.PAYMENT_PROVIDER_URL = "http://provider.invalid"
    answer = Answer(outcome=Outcome.UNKNOWN)
    monkeypatch.setattr(SandboxProvider, "query_refund", lambda self, *, key: answer)
    client = staff("view_refund", "refund_order")
    page = url("refund_retry", failed.pk)
    shown = text_of(client.post(page, {"reason": "the card works again"}))
    assert "the provider does not say yet that it failed" in shown
    answer = Answer(outcome=Outcome.OK, state=ProviderState.FAILED)
    assert page in text_of(client.get(url("refund_change", failed.pk)))
    assert "REFUSED" in text_of(client.get(page))

    assert client.post(page, {"reason": "the card works again"}).status_code == 302

    assert rows("SELECT status, provider_key <> 'old-key' FROM orders_refund") == [("DUE", True)]
    assert rows("SELECT object_id, change_message FROM django_admin_log") == [
        (failed.pk, "Tried again: the card works again")
    ]
    assert page not in text_of(client.get(url("refund_change", failed.pk)))
    assert "the order is DUE" not in text_of(client.get(page))
    assert "DUE" in text_of(client.post(page, {"reason": "twice"}))


def test_stuck_money_is_recorded_as_settled_outside(failed, monkeypatch, settings):
    settings.PAYMENT_PROVIDER_URL = "http://provider.invalid"
    monkeypatch.setattr(
        SandboxProvider, "query_refund", lambda self, *, key: Answer(outcome=Outcome.UNKNOWN)
    )
    client = staff("view_refund", "view_paymentattempt", "refund_order")
    page = url("refund_outside", failed.pk)
    assert page in text_of(client.get(url("refund_change", failed.pk)))
    shown = text_of(client.post(page, {"reason": "by bank", "reference": ""}))
    assert "This field is required" in shown
    assert "by bank" in shown

    proof = {"reason": "by bank", "reference": "TX-1"}
    assert client.post(page, proof).status_code == 302

    assert rows("SELECT status, outside_reference FROM orders_refund") == [("SUCCEEDED", "TX-1")]
    assert page not in text_of(client.get(url("refund_change", failed.pk)))
    # The attempt itself is settled: nothing is offered, and the service says no.
    attempt = failed.attempt_id
    outside = url("attempt_outside", attempt)
    assert outside not in text_of(client.get(url("paymentattempt_change", attempt)))
    assert "look again" in text_of(client.post(outside, proof))
    # One that captured another amount.
    execute(
        "UPDATE orders_payment_attempt SET status = 'SUBMIT_UNKNOWN', settled_at = NULL,"
        " next_try_at = now(), error_class = 'AMOUNT_MISMATCH'"
    )
    assert outside in text_of(client.get(url("paymentattempt_change", attempt)))
    assert client.post(outside, proof).status_code == 302
    assert rows("SELECT status, outside_reference FROM orders_payment_attempt") == [
        ("FAILED", "TX-1")
    ]


@pytest.mark.parametrize("codename", ["view_order", "cancel_order", "refund_order", "view_refund"])
def test_half_of_the_permissions_is_none(sale, paid, unpaid, failed, codename):
    client = staff(codename)
    for page in (
        url("order_cancel", unpaid.order_id),
        url("order_refund", paid.order_id),
        url("refund_retry", failed.pk),
        url("refund_outside", failed.pk),
        url("attempt_outside", failed.attempt_id),
    ):
        assert client.get(page).status_code == 403
        assert client.post(page, WITHHOLD).status_code == 403
    assert (sale.order_status(unpaid), sale.order_status(paid)) == ("CREATED", "PAID")
    assert Refund.objects.get().status == "FAILED"
    if codename == "view_order":
        shown = text_of(client.get(url("order_change", unpaid.order_id)))
        assert "/cancel/" not in shown


def test_strangers_other_methods_and_unknown_rows(unpaid):
    page = url("order_cancel", unpaid.order_id)
    assert "/login/" in Client().post(page, WITHHOLD)["location"]
    client = staff("view_order", "cancel_order", "refund_order", "view_refund")
    for method in (client.put, client.delete, client.patch):
        assert method(page).status_code == 405
    for name in ("order_cancel", "order_refund", "refund_retry", "refund_outside"):
        assert client.get(url(name, "ord_unknown")).status_code == 404
    checking = Client(enforce_csrf_checks=True)
    checking.force_login(User.objects.get(username="op"))
    assert checking.post(page, WITHHOLD).status_code == 403


def test_a_sale_is_declared_void_by_two_people(sale, unpaid, paid):
    asker = staff("request_void", "approve_void", name="ada")
    approver = staff("approve_void", name="bea")
    ask = reverse("admin:orders_activityvoid_add")
    assert ask in text_of(asker.get(reverse("admin:orders_activityvoid_changelist")))
    assert f'value="{sale.activity_id}"' in text_of(asker.get(ask))
    answer = asker.post(ask, {"activity_id": sale.activity_id, "reason": "wrong price"})
    void_id = one("SELECT id FROM orders_void")
    approve = url("void_approve", void_id)
    assert answer["location"] == url("activityvoid_change", void_id)

    # The one who asked is not offered to approve, and may not.
    assert approve not in text_of(asker.get(answer["location"]))
    assert [asker.get(approve).status_code, asker.post(approve).status_code] == [403, 403]
    assert approve in text_of(approver.get(answer["location"]))
    shown = text_of(approver.get(approve))
    for line in (
        "wrong price", "ada", "1 paid order (1 unit, 19.99 EUR) is refunded.",
        "1 unpaid order (1 unit, 19.99 EUR) is cancelled.",
    ):  # fmt: skip
        assert line in shown, line
    assert one("SELECT voided_at FROM inventory_activity") is None

    assert approver.post(approve).status_code == 302

    assert one("SELECT voided_at IS NOT NULL AND status = 'CLOSED' FROM inventory_activity")
    assert rows("SELECT requested_by, approved_by FROM orders_void") == [("ada", "bea")]
    again = approver.post(approve)
    assert "it is approved or withdrawn already" in text_of(again)
    assert approve not in text_of(approver.get(answer["location"]))
    refused = asker.post(url("void_withdraw", void_id))
    assert "it is approved or withdrawn already" in text_of(refused)


def test_a_request_for_a_void_is_refused_with_its_words_and_may_be_withdrawn(sale):
    asker = staff("request_void", name="ada")
    ask = reverse("admin:orders_activityvoid_add")
    wanted = {"activity_id": sale.activity_id, "reason": "a careful reason"}
    asker.post(ask, wanted)
    again = text_of(asker.post(ask, wanted))
    assert "it was asked for already" in again
    assert "a careful reason" in again
    void_id = one("SELECT id FROM orders_void")
    assert "goes on as it is" in text_of(asker.get(url("void_withdraw", void_id)))
    assert one("SELECT withdrawn_at FROM orders_void") is None
    assert asker.post(url("void_withdraw", void_id)).status_code == 302
    assert one("SELECT withdrawn_by FROM orders_void") == "ada"
    assert one("SELECT voided_at FROM inventory_activity") is None


def test_void_pages_need_their_permissions(sale):
    void_id = request_void(
        activity_id=sale.activity_id, reason="r", user=User.objects.create_superuser("root")
    )
    ask = reverse("admin:orders_activityvoid_add")
    form = {"activity_id": sale.activity_id, "reason": "r"}
    viewer, asker = staff("view_activityvoid", name="vic"), staff("request_void", name="ada")
    approver = staff("approve_void", name="bea")
    for client in (viewer, approver):
        assert [client.get(ask).status_code, client.post(ask, form).status_code] == [403, 403]
    for client in (viewer, asker):
        assert client.post(url("void_approve", void_id)).status_code == 403
    assert viewer.post(url("void_withdraw", void_id)).status_code == 403
    delete = url("activityvoid_delete", void_id)
    assert approver.post(delete, {"post": "yes"}).status_code == 403
    assert rows("SELECT approved_at, withdrawn_at FROM orders_void") == [(None, None)]
