"""The final stock under competition, and its ledger."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from inventory import selectors, stock
from inventory.activities import NewSku, create_activity
from inventory.errors import OutOfStock
from inventory.models import Sku, Stock, StockLedger
from inventory.stock import Return, Sale


@pytest.fixture
def skus(db: None) -> Callable[[int, int], list[int]]:
    """Make SKUs with a stock row, without a gate: `skus(count, units)`."""

    def make(count: int, units: int) -> list[int]:
        now = timezone.now()
        activity_id = create_activity(
            name="a sale",
            starts_at=now,
            ends_at=now + timedelta(hours=1),
            skus=[NewSku(name=str(n), price_cents=100, initial_units=units) for n in range(count)],
        )
        ids = list(Sku.objects.filter(activity_id=activity_id).order_by("pk"))
        Stock.objects.bulk_create(
            Stock(sku=sku, activity_id=activity_id, available=units, initial=units) for sku in ids
        )
        return [sku.pk for sku in ids]

    return make


def available(sku_id: int) -> int:
    return Stock.objects.get(pk=sku_id).available


def in_threads(count: int, work: Callable[[int], None]) -> None:
    def run(n: int) -> None:
        try:
            work(n)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.django_db(transaction=True)
def test_a_hundred_orders_at_once_lose_no_update(skus) -> None:
    """Case 26: ledger = counter; 90 units, 100 orders, exactly 10 refused."""
    (sku_id,) = skus(1, 90)
    refused, together = [], threading.Barrier(20, timeout=30)

    def work(worker: int) -> None:
        together.wait()
        for n in range(5):
            try:
                with transaction.atomic():
                    order_id = f"ord_{worker}_{n}"
                    stock.book_sales(
                        [Sale(activity_id=1, sku_id=sku_id, order_id=order_id, units=1)]
                    )
                    stock.take({sku_id: 1})
            except OutOfStock:
                refused.append(order_id)

    in_threads(20, work)

    assert len(refused) == 10
    assert available(sku_id) == 0
    sold = StockLedger.objects.filter(sku_id=sku_id)
    assert sold.count() == 90
    assert sum(sold.values_list("delta", flat=True)) == -90


@pytest.mark.django_db(transaction=True)
def test_opposite_orders_of_skus_never_deadlock(skus) -> None:
    first, second = skus(2, 100)
    together = threading.Barrier(2, timeout=30)

    def work(worker: int) -> None:
        pair = [first, second] if worker else [second, first]
        together.wait()
        for _ in range(20):
            with transaction.atomic():
                stock.take(dict.fromkeys(pair, 1))
            with transaction.atomic():
                stock.give_back([])
                stock.lock(pair)

    in_threads(2, work)
    assert (available(first), available(second)) == (60, 60)


def test_several_skus_are_taken_all_or_none_and_the_transaction_lives_on(skus) -> None:
    first, second = skus(2, 5)
    with transaction.atomic():
        with pytest.raises(OutOfStock, match=str(second)):
            stock.take({first: 1, second: 6})
        stock.take({first: 2})  # alone, a reject goes on in the same transaction
    assert (available(first), available(second)) == (3, 5)


@pytest.mark.parametrize("demand", [{}, {10**9: 1}])
def test_nothing_and_nobody(skus, demand) -> None:
    (sku_id,) = skus(1, 5)
    with transaction.atomic():
        if demand:
            with pytest.raises(OutOfStock):
                stock.take(demand)
        else:
            stock.take(demand)
    assert available(sku_id) == 5


@pytest.mark.django_db(transaction=True)
def test_rows_are_locked_in_sku_order_before_they_are_written(skus) -> None:
    first, second = skus(2, 5)
    with (
        CaptureQueriesContext(
            connection,
        ) as queries,
        transaction.atomic(),
    ):
        stock.take({second: 1, first: 1})
    statements = [q["sql"] for q in queries if "inventory_stock" in q["sql"]]
    assert len(statements) == 2
    assert "ORDER BY sku_id FOR NO KEY UPDATE" in statements[0]
    assert statements[1].lstrip().startswith("UPDATE inventory_stock")
    with pytest.raises(transaction.TransactionManagementError):
        stock.lock([first])


def test_returns_go_back_on_sale_or_are_withheld(skus) -> None:
    first, second = skus(2, 5)

    def returned(sku_id: int, order_id: str, restock: bool) -> Return:
        return Return(activity_id=1, sku_id=sku_id, order_id=order_id, units=2, restock=restock)

    with transaction.atomic():
        stock.give_back(
            [
                returned(second, "ord_c", False),
                returned(first, "ord_a", True),
                returned(first, "ord_b", True),
            ]
        )
    assert (available(first), available(second)) == (9, 5)
    assert Stock.objects.get(pk=second).withheld == 2
    lines = StockLedger.objects.order_by("source_id").values_list("kind", "delta", "units")
    assert list(lines) == [("RESTOCK", 2, 2), ("RESTOCK", 2, 2), ("WITHHELD", 0, 2)]


def test_an_orders_units_are_returned_once(skus) -> None:
    """Case 19 at the ledger: the second time the database refuses."""
    (sku_id,) = skus(1, 5)
    row = Return(activity_id=1, sku_id=sku_id, order_id="ord_a", units=2, restock=True)
    with transaction.atomic():
        stock.give_back([row])
    with pytest.raises(IntegrityError), transaction.atomic():
        stock.give_back([row])
    assert available(sku_id) == 7


def test_the_hot_row_is_updated_hot(skus) -> None:
    """fillfactor 50 and no index on quantities: updates stay on their page."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = 'inventory_stock'")
        assert cursor.fetchone() == (["fillfactor=50"],)
        cursor.execute("SELECT count(*) FROM pg_indexes WHERE tablename = 'inventory_stock'")
        assert cursor.fetchone() == (1,)


def test_the_database_refuses_less_than_nothing(skus) -> None:
    (sku_id,) = skus(1, 5)
    with pytest.raises(IntegrityError, match="inventory_stock_available_ck"), transaction.atomic():
        Stock.objects.filter(pk=sku_id).update(available=-1)


def test_conservation_compares_row_and_ledger(skus) -> None:
    (sku_id,) = skus(1, 5)
    activity_id = Stock.objects.get(pk=sku_id).activity_id
    with transaction.atomic():
        stock.book_sales([Sale(activity_id=activity_id, sku_id=sku_id, order_id="ord_a", units=2)])
        stock.take({sku_id: 2})
        stock.give_back(
            [
                Return(
                    activity_id=activity_id,
                    sku_id=sku_id,
                    order_id="ord_a",
                    units=2,
                    restock=False,
                )
            ]
        )
    (record,) = selectors.conservation(activity_id)
    assert (record.available, record.initial, record.withheld) == (3, 5, 2)
    assert (record.ledger_delta, record.sold_units, record.restocked_units) == (-2, 2, 0)
    assert record.ledger_withheld == 2
