"""adopt.lua: an order that the gate does not know of takes its units, once, or nothing."""

import pytest

from inventory import keys, verbs
from inventory.contracts import AdoptCode
from inventory.errors import GateScriptError

RSV = "rsv_01KZ0000000000000000000000"


def adopt(sale, **changes):
    values = {
        "activity_id": sale.activity_id,
        "sku_id": 7,
        "order_id": "ord_1",
        "user_id": "ann",
        "reservation_id": RSV,
        "quantity": 2,
        "epoch": 1,
    } | changes
    return sale.run(verbs.adopt(**values))


def test_it_takes_the_units_and_lets_the_buyer_hold_them(new_sale):
    sale = new_sale(5)
    version = sale.state().version

    assert adopt(sale) is AdoptCode.OK

    assert (sale.stock(), sale.holders(), sale.state().version) == (3, {"ann": RSV}, version + 1)
    assert (sale.pending(), sale.opened(), sale.stored(RSV)) == ({}, {}, {})  # nothing is created


def test_repeated_it_takes_nothing_more(new_sale):
    sale = new_sale(5)
    adopt(sale)
    assert adopt(sale) is AdoptCode.HELD
    sale.client.hdel(keys.buyers(sale.activity_id, 7), "ann")
    assert adopt(sale) is AdoptCode.REPEATED
    assert sale.stock() == 3


@pytest.mark.parametrize(
    ("given", "changes", "answer"),
    [
        ("taken", {}, AdoptCode.TAKEN),
        ("short", {}, AdoptCode.SHORT),
        ("rebuilding", {}, AdoptCode.RETRY),
        ("lost", {}, AdoptCode.RETRY),
        ("open", {"epoch": 2}, AdoptCode.RETRY),
    ],
)
def test_else_it_changes_nothing(new_sale, given, changes, answer):
    sale = new_sale(5)
    if given == "taken":
        sale.buy("ann")
    elif given == "short":
        sale.client.set(keys.stock(sale.activity_id, 7), 1)
    elif given == "rebuilding":
        sale.rebuilding()
    elif given == "lost":
        sale.client.delete(keys.stock(sale.activity_id, 7))
    before = sale.dump()

    assert adopt(sale, **changes) is answer

    assert sale.dump() == before


def test_ill_arguments_are_refused_before_anything_is_read(new_sale):
    sale = new_sale(5)
    with pytest.raises(GateScriptError, match="ill argument"):
        adopt(sale, quantity=0)
    assert sale.stock() == 5
