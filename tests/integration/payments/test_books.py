"""The scheduled comparison with the provider's book opens an item for what lasts, and only that."""

import json

import pytest

from messaging.models import QuarantineRow
from orders.payments import books, providers
from orders.payments.attempts import start_payment
from orders.payments.money import BookComparison
from orders.payments.port import ProviderUnavailable
from orders.tasks import compare_books
from tests.fixtures.payments import pass_window, run_jobs
from tests.fixtures.sales import open_sale

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_charge_that_nobody_asks_about_any_more_becomes_an_item(sandbox):
    sale = open_sale(units=5, price_cents=1999)
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    order_id = reservation.order_id
    sandbox.arm("create_payment", "timeout_after", reference=order_id)
    sandbox.arm("query_payment", "not_found", reference=order_id)
    start_payment(order_id=order_id, user_id="ann")
    assert compare_books() == 0
    pass_window(order_id)
    run_jobs()

    assert (compare_books(), compare_books()) == (1, 1)

    (item,) = QuarantineRow.objects.all()
    assert (item.consumer_group, item.reason) == ("PAYMENT", "BOOK_STATE")
    body = json.loads(bytes(item.body))
    assert (body["order_id"], body["ours"], body["theirs"]) == (order_id, "FAILED", "SUCCEEDED")


def test_what_settles_between_two_looks_and_a_book_that_is_closed_open_nothing(
    sandbox, monkeypatch
):
    looks = iter([("difference",), ()])
    monkeypatch.setattr(
        books,
        "compare_book",
        lambda provider: BookComparison(compared=1, foreign=0, differences=next(looks)),
    )
    assert books.compare_all() == 0
    assert next(looks, None) is None  # looked twice

    def away(name: str) -> object:
        raise ProviderUnavailable(name)

    monkeypatch.setattr(providers, "named", away)
    assert books.compare_all() == 0
    assert not QuarantineRow.objects.exists()
