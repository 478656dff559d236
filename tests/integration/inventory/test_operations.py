"""Operators' changes of a sale, undisturbed: rows in PostgreSQL, then the gate."""

from datetime import timedelta

import pytest
from django.utils import timezone

from inventory import operations
from inventory.errors import OperationRefused
from inventory.models import Activity, GateOperation, StockLedger
from inventory.operations import EditWish

pytestmark = pytest.mark.django_db(transaction=True)  # the order of commits matters here


def test_from_draft_to_closed(new_draft) -> None:
    sale = new_draft(units=10, skus=2)
    assert sale.state() is None

    warm = operations.warm_up(activity_id=sale.activity_id)
    assert (sale.row.status, sale.operation(warm).status) == ("WARM", "DONE")
    assert (sale.final.available, sale.final.initial) == (10, 10)
    assert sale.ledger() == [("INITIAL", 10), ("INITIAL", 10)]
    assert (sale.state().status, sale.row.opened_at) == ("CLOSED", None)
    assert sale.buy("ann").code.name == "CLOSED"

    for request, row, at_gate in [
        (operations.request_open, "OPEN", "OPEN"),
        (operations.request_pause, "PAUSED", "PAUSED"),
        (operations.request_resume, "OPEN", "OPEN"),
        (operations.request_close, "CLOSED", "CLOSED"),
        (operations.request_open, "OPEN", "OPEN"),
        (operations.request_stop, "CLOSED", "CLOSED"),
    ]:
        operation = request(activity_id=sale.activity_id, reason="because")
        assert sale.operation(operation).status == "DONE"
        assert sale.row.status == row
        for sku_id in sale.sku_ids:
            assert sale.state(sku_id).status == at_gate
            assert sale.state(sku_id).stopped is (row != "OPEN")
    assert sale.row.opened_at is not None
    sale.assert_conserved()


@pytest.mark.parametrize(
    ("request_", "allowed"),
    [
        ("request_open", {"WARM", "CLOSED"}),
        ("request_pause", {"OPEN"}),
        ("request_resume", {"PAUSED"}),
        ("request_close", {"WARM", "OPEN", "PAUSED"}),
        ("request_stop", {"WARM", "OPEN", "PAUSED", "CLOSED"}),
    ],
)
def test_which_change_each_status_allows(new_sale, request_, allowed) -> None:
    sale = new_sale()
    for status in ("DRAFT", "WARM", "OPEN", "PAUSED", "CLOSED", "SETTLED"):
        Activity.objects.filter(pk=sale.activity_id).update(status=status)
        before = GateOperation.objects.count()
        if status in allowed:
            getattr(operations, request_)(activity_id=sale.activity_id, reason="because")
            assert GateOperation.objects.count() == before + 1
        else:
            with pytest.raises(OperationRefused, match=status):
                getattr(operations, request_)(activity_id=sale.activity_id, reason="because")
            assert (GateOperation.objects.count(), sale.row.status) == (before, status)


def test_a_sale_that_can_sell_nothing_is_not_warmed_up(new_draft) -> None:
    sale = new_draft(units=0, ends_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(OperationRefused, match="no units, its window has ended"):
        operations.warm_up(activity_id=sale.activity_id)
    assert (sale.row.status, StockLedger.objects.count()) == ("DRAFT", 0)


def test_a_reason_and_a_sale_are_needed(new_sale) -> None:
    sale = new_sale()
    with pytest.raises(OperationRefused, match="reason"):
        operations.request_pause(activity_id=sale.activity_id, reason="  ")
    with pytest.raises(OperationRefused, match="no activity 999"):
        operations.request_pause(activity_id=999, reason="because")
    assert sale.row.status == "OPEN"


def test_warm_up_again_before_the_open_loads_the_same_stock(new_draft) -> None:
    sale = new_draft()
    operations.warm_up(activity_id=sale.activity_id)
    operations.request_top_up(
        activity_id=sale.activity_id, sku_id=sale.sku_id, units=5, reason="more"
    )
    sale.client.flushdb()
    waiting = operations.request_top_up(
        activity_id=sale.activity_id, sku_id=sale.sku_id, units=2, reason="more"
    )
    assert sale.operation(waiting).status == "REQUESTED"

    operations.warm_up(activity_id=sale.activity_id)
    operations.drive()

    assert sale.operation(waiting).status == "DONE"
    assert sale.ledger() == [("INITIAL", 10), ("TOP_UP", 5), ("TOP_UP", 2)]
    sale.assert_conserved()
    assert sale.state().stock == 17


def test_warm_up_never_loads_a_sale_that_was_opened(new_sale) -> None:
    sale = new_sale()
    sale.buy("ann")
    with pytest.raises(OperationRefused, match="rebuild_gate"):
        operations.warm_up(activity_id=sale.activity_id)
    assert sale.state().stock == 9


def test_a_repeated_operation_id_changes_nothing(new_sale) -> None:
    sale = new_sale()
    args = {"activity_id": sale.activity_id, "sku_id": sale.sku_id, "reason": "more"}
    for _ in range(3):
        operations.request_top_up(**args, units=5, operation_id="op_one")
    with pytest.raises(OperationRefused, match="another request"):
        operations.request_top_up(**args, units=6, operation_id="op_one")
    assert (sale.final.available, sale.state().stock) == (15, 15)
    assert sale.ledger() == [("INITIAL", 10), ("TOP_UP", 5)]


def test_an_edit_reaches_row_and_gate(new_sale) -> None:
    sale = new_sale(skus=2)
    ends_at = timezone.now().replace(microsecond=0) + timedelta(hours=9)
    operations.request_edit(
        activity_id=sale.activity_id,
        wish=EditWish(
            ends_at=ends_at, validity_s=60, max_open=7, limit_per_user={sale.sku_ids[1]: 3}
        ),
        reason="longer",
    )
    row = sale.row
    assert (row.ends_at, row.validity_s, row.max_open) == (ends_at, 60, 7)
    config = sale.state(sale.sku_ids[1]).config
    assert (config.ends_ms, config.validity_ms, config.max_open, config.limit_per_user) == (
        ends_at.timestamp() * 1000,
        60_000,
        7,
        3,
    )
    assert sale.state(sale.sku_ids[0]).config.limit_per_user == 1


def test_an_edit_of_an_older_view_is_refused(new_sale) -> None:
    sale = new_sale()
    seen = sale.row.version
    for number, fine in [(1, True), (2, False)]:
        args = {
            "activity_id": sale.activity_id,
            "wish": EditWish(max_open=number),
            "expected_version": seen,
            "reason": "because",
        }
        if fine:
            operations.request_edit(**args)
        else:
            with pytest.raises(OperationRefused, match="changed meanwhile"):
                operations.request_edit(**args)
    assert (sale.row.max_open, sale.state().config.max_open) == (1, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ends_at": timezone.now() - timedelta(days=9)},
        {"validity_s": 0},
        {"max_open": 0},
        {"limit_per_user": {10**9: 1}},
    ],
)
def test_an_ill_edit_changes_nothing(new_sale, wrong) -> None:
    sale = new_sale()
    version = sale.row.version
    with pytest.raises(OperationRefused):
        operations.request_edit(
            activity_id=sale.activity_id, wish=EditWish(**wrong), reason="because"
        )
    assert (sale.row.version, sale.row.max_open) == (version, 20_000)
