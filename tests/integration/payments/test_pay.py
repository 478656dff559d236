"""Paying at the real provider process: every clear and unclear answer, one charge."""

import pytest
from django.db import transaction

from messaging.topology import ORDER_EVENT
from orders.cancel_order import cancel_by_user
from orders.errors import OrderNotFound, OrderStateConflict
from orders.payments import attempts as machine
from orders.payments import providers
from orders.payments.attempts import start_payment
from orders.payments.port import Answer, Outcome, ProviderState, ProviderUnavailable
from orders.payments.selectors import payment_state
from tests.fixtures.payments import (
    assert_money_exact,
    attempts,
    make_due,
    open_items,
    pass_window,
    poll,
    refunds,
    run_jobs,
    settle_all,
)
from tests.fixtures.sales import (
    at_once,
    make_overdue,
    open_sale,
    outbox_messages,
)
from tests.fixtures.sql import execute, one, rows

pytestmark = pytest.mark.django_db
PRICE = 1999


def _ordered(sale, user="ann"):
    reservation = sale.reserve(user)
    sale.deliver(reservation)
    return reservation.order_id


@pytest.fixture
def sale(committed):
    return open_sale(units=5, price_cents=PRICE)


@pytest.fixture
def order_id(sale):
    return _ordered(sale)


def _status(order_id):
    return one("SELECT status FROM orders_order WHERE order_id = %s", order_id)


def test_a_payment_is_recorded_sent_and_kept(sandbox, order_id):
    start_payment(order_id=order_id, user_id="ann")

    state = payment_state(order_id=order_id, user_id="ann")
    (attempt,) = state.attempts
    assert (state.order.status, state.order.payment_id) == ("PAID", attempt.attempt_id)
    assert (attempt.status, attempt.amount_cents, attempt.currency) == ("SUCCEEDED", PRICE, "EUR")
    (entry,) = sandbox.entries(order_id)
    assert (entry["idempotency_key"], entry["amount_cents"]) == (attempt.attempt_id, PRICE)
    assert [m.tag for m in outbox_messages(ORDER_EVENT)] == ["ORDER_CREATED", "ORDER_PAID"]
    assert state.order.version == 3  # CREATED, PAYING, PAID
    assert assert_money_exact(sandbox).kept == PRICE


def test_the_order_is_paying_before_anything_is_sent(sandbox, order_id):
    sandbox.arm("create_payment", "error_before", reference=order_id)

    start_payment(order_id=order_id, user_id="ann")

    assert (_status(order_id), attempts(order_id)) == (
        "PAYING",
        [("SUBMIT_UNKNOWN", "HTTP_500")],
    )
    assert sandbox.entries(order_id) == []


@pytest.mark.parametrize("fault", ["timeout_after", "error_after"])
def test_charged_without_an_answer_is_settled_by_query(sandbox, order_id, fault):
    sandbox.arm("create_payment", fault, reference=order_id)

    start_payment(order_id=order_id, user_id="ann")
    assert attempts(order_id)[0][0] == "SUBMIT_UNKNOWN"
    assert_money_exact(sandbox, at_rest=False)
    settle_all()

    assert (_status(order_id), attempts(order_id)) == ("PAID", [("SUCCEEDED", "")])
    assert len(sandbox.entries(order_id)) == 1
    assert refunds(order_id) == []
    assert_money_exact(sandbox)


def test_what_never_arrived_is_sent_again_under_the_same_key(sandbox, order_id):
    sandbox.arm("create_payment", "error_before", reference=order_id)

    start_payment(order_id=order_id, user_id="ann")
    settle_all()

    assert (_status(order_id), attempts(order_id)) == ("PAID", [("SUCCEEDED", "")])
    assert one("SELECT submit_count FROM orders_payment_attempt") == 2
    (entry,) = sandbox.entries(order_id)
    assert entry["idempotency_key"] == one("SELECT attempt_id FROM orders_payment_attempt")
    assert_money_exact(sandbox)


def test_an_early_not_found_is_no_failure(sandbox, order_id):
    """The provider has charged and does not know it yet: the same key charges nothing twice."""
    sandbox.arm("create_payment", "timeout_after", reference=order_id)
    sandbox.arm("query_payment", "not_found", reference=order_id)

    start_payment(order_id=order_id, user_id="ann")
    settle_all()

    assert (_status(order_id), attempts(order_id)) == ("PAID", [("SUCCEEDED", "")])
    assert len(sandbox.entries(order_id)) == 1
    assert_money_exact(sandbox)


def test_until_the_window_has_passed_nobody_starts_another_attempt(sandbox, order_id):
    sandbox.arm("create_payment", "error_before", reference=order_id, times=2)
    start_payment(order_id=order_id, user_id="ann")
    run_jobs()  # NOT_FOUND, sent again, unclear again

    start_payment(order_id=order_id, user_id="ann")

    assert len(attempts(order_id)) == 1
    assert rows("SELECT submit_count FROM orders_payment_attempt") == [(2,)]
    settle_all()
    assert _status(order_id) == "PAID"


def test_a_cancelled_order_is_not_charged_by_sending_again(sandbox, order_id):
    """Attempts are settled whatever the order's state: asked about, but not sent for nothing."""
    sandbox.arm("create_payment", "error_before", reference=order_id)
    start_payment(order_id=order_id, user_id="ann")
    cancel_by_user(order_id=order_id, user_id="ann")

    run_jobs()
    assert attempts(order_id) == [("SUBMIT_UNKNOWN", "NOT_FOUND")]
    pass_window(order_id)
    run_jobs()

    assert attempts(order_id) == [("FAILED", "NOT_FOUND")]
    assert sandbox.entries(order_id) == []
    assert_money_exact(sandbox)


def test_a_charge_that_surfaces_after_the_cancel_is_refunded(sandbox, order_id):
    """NOT_FOUND came too early, the order is cancelled meanwhile, the money lands later."""
    sandbox.arm("create_payment", "late_accept", reference=order_id, delay_ms=1500)
    start_payment(order_id=order_id, user_id="ann")
    cancel_by_user(order_id=order_id, user_id="ann")
    run_jobs()
    assert attempts(order_id) == [("SUBMIT_UNKNOWN", "NOT_FOUND")]
    poll(lambda: sandbox.entries(order_id), what="the late charge is in the provider's book")

    settle_all()

    assert (_status(order_id), refunds(order_id)) == ("CANCELED", [("LATE_PAYMENT", "SUCCEEDED")])
    assert sandbox.net_cents(order_id) == 0
    assert assert_money_exact(sandbox).refunded == PRICE


def test_second_capture_after_a_not_found_that_was_believed_too_early(sandbox, order_id):
    """The provider broke its word: the first attempt was FAILED after its window, then charged."""
    sandbox.arm("create_payment", "error_before", reference=order_id)
    start_payment(order_id=order_id, user_id="ann")
    sandbox.arm("query_payment", "not_found", reference=order_id)
    pass_window(order_id)
    run_jobs()
    assert attempts(order_id) == [("FAILED", "NOT_FOUND")]
    first = one("SELECT attempt_id FROM orders_payment_attempt")
    start_payment(order_id=order_id, user_id="ann")
    assert _status(order_id) == "PAID"

    provider = providers.current()
    answer = provider.create_payment(  # what was on its way all the time arrives
        key=first, reference=order_id, amount_cents=PRICE, currency="EUR"
    )
    machine.record_answer(_attempt_of(first), answer)
    assert refunds(order_id) == [("SECOND_CAPTURE", "DUE")]
    assert assert_money_exact(sandbox).refund_due == PRICE
    settle_all()

    assert refunds(order_id) == [("SECOND_CAPTURE", "SUCCEEDED")]
    assert (_status(order_id), sandbox.net_cents(order_id)) == ("PAID", PRICE)
    money = assert_money_exact(sandbox)
    assert (money.money_in, money.kept, money.refunded) == (2 * PRICE, PRICE, PRICE)


def _attempt_of(attempt_id):
    make_due()
    ((order_id, submitted_at),) = rows(
        "SELECT order_id, submitted_at FROM orders_payment_attempt WHERE attempt_id = %s",
        attempt_id,
    )
    return machine.Attempt(
        attempt_id=attempt_id,
        order_id=order_id,
        provider="sandbox",
        amount_cents=PRICE,
        currency="EUR",
        submitted_at=submitted_at,
    )


def test_a_declined_payment_may_be_tried_again(sandbox, order_id):
    sandbox.arm("create_payment", "decline", reference=order_id)

    start_payment(order_id=order_id, user_id="ann")
    assert (_status(order_id), attempts(order_id)) == ("PAYING", [("FAILED", "DECLINED")])
    start_payment(order_id=order_id, user_id="ann")

    assert attempts(order_id) == [("FAILED", "DECLINED"), ("SUCCEEDED", "")]
    assert (_status(order_id), sandbox.net_cents(order_id)) == ("PAID", PRICE)
    assert_money_exact(sandbox)


def test_a_pending_payment_is_asked_about(sandbox, order_id):
    sandbox.arm("create_payment", "pending", reference=order_id, delay_ms=100)

    start_payment(order_id=order_id, user_id="ann")
    assert (_status(order_id), attempts(order_id)) == ("PAYING", [("SUBMITTED", "")])
    poll(lambda: sandbox.net_cents(order_id) == PRICE, what="captured at the provider")
    settle_all()

    assert (_status(order_id), attempts(order_id)) == ("PAID", [("SUCCEEDED", "")])
    assert_money_exact(sandbox)


def test_many_clicks_are_one_charge(sandbox, order_id):
    results = at_once([lambda: start_payment(order_id=order_id, user_id="ann")] * 6)

    assert {type(r) for r in results} <= {type(None), OrderStateConflict}
    assert (attempts(order_id), len(sandbox.entries(order_id))) == ([("SUCCEEDED", "")], 1)
    assert_money_exact(sandbox)


def test_only_the_buyer_of_an_unpaid_order_pays(sandbox, order_id):
    with pytest.raises(OrderNotFound):
        start_payment(order_id=order_id, user_id="bob")
    cancel_by_user(order_id=order_id, user_id="ann")
    with pytest.raises(OrderStateConflict):
        start_payment(order_id=order_id, user_id="ann")

    assert (attempts(order_id), sandbox.entries(order_id)) == ([], [])


def test_past_expiry_a_payment_is_accepted_while_the_order_is_not_cancelled(sandbox, sale):
    reservation = sale.reserve("late")
    sale.deliver(reservation)
    make_overdue(reservation)

    start_payment(order_id=reservation.order_id, user_id="late")

    assert _status(reservation.order_id) == "PAID"


def test_without_a_provider_nothing_is_recorded(order_id, settings):
    settings.PAYMENT_PROVIDER_URL = ""

    with pytest.raises(ProviderUnavailable):
        start_payment(order_id=order_id, user_id="ann")

    assert (_status(order_id), attempts(order_id)) == ("CREATED", [])


def test_another_amount_than_asked_for_is_a_persons_affair(sandbox, order_id):
    sandbox.arm("create_payment", "error_before", reference=order_id)
    start_payment(order_id=order_id, user_id="ann")
    attempt = _attempt_of(one("SELECT attempt_id FROM orders_payment_attempt"))

    machine.record_answer(
        attempt,
        Answer(
            outcome=Outcome.OK,
            state=ProviderState.SUCCEEDED,
            provider_id="p1",
            amount_cents=PRICE - 1,
            currency="EUR",
        ),
    )

    assert attempts(order_id) == [("SUBMIT_UNKNOWN", "AMOUNT_MISMATCH")]
    assert open_items() == [("PAYMENT", "AMOUNT_MISMATCH")]
    assert (_status(order_id), refunds(order_id)) == ("PAYING", [])


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.create_payment(key="k", reference="r", amount_cents=1, currency="EUR"),
        lambda p: p.query_payment(key="k"),
        lambda p: p.refund(key="k", provider_payment_id="p", amount_cents=1),
        lambda p: p.query_refund(key="k"),
        lambda p: p.book(after=0, limit=1),
    ],
)
def test_no_network_call_inside_a_transaction(sandbox, call):
    """Case 20."""
    before = sandbox.call("GET", "/v1/book?limit=1000")

    with transaction.atomic(), pytest.raises(RuntimeError, match="inside a transaction"):
        call(providers.current())

    assert sandbox.call("GET", "/v1/book?limit=1000") == before


def test_a_provider_that_is_away_costs_three_deadlines_a_round(sandbox, sale, settings):
    made = sale.reserve_all([f"u{n}" for n in range(5)])
    sale.deliver(*made)
    settings.PAYMENT_PROVIDER_URL = "http://127.0.0.1:9"  # nobody listens
    for reservation in made:
        start_payment(order_id=reservation.order_id, user_id=reservation.user_id)
    assert {attempts(r.order_id)[0][0] for r in made} == {"SUBMIT_UNKNOWN"}

    assert run_jobs() == 3
    settings.PAYMENT_PROVIDER_URL = sandbox.url
    settle_all()

    assert {_status(r.order_id) for r in made} == {"PAID"}
    assert assert_money_exact(sandbox).kept == 5 * PRICE


def test_one_open_attempt_is_the_databases_word(sandbox, order_id):
    sandbox.arm("create_payment", "error_before", reference=order_id)
    start_payment(order_id=order_id, user_id="ann")

    with pytest.raises(Exception, match="orders_payment_attempt_open_uniq"):
        execute(
            "INSERT INTO orders_payment_attempt (attempt_id, order_id, attempt_no, provider,"
            " amount_cents, currency, status, submitted_at, submit_count, next_try_at, tries,"
            " error_class) SELECT 'pay_x', order_id, 9, provider, amount_cents, currency,"
            " 'CREATED', now(), 1, now(), 0, '' FROM orders_payment_attempt"
        )
