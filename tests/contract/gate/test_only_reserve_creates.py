"""Only `reserve` creates reservation keys: no other verb makes a stub or re-adds to a ZSET."""

import random

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from inventory import keys, verbs
from inventory.contracts import GiveBackItem, ReleaseItem
from tests.fixtures.gate import ME

MISSING = "rsv_01MISSING"


def calls(reservation_id: str, user_id: str):
    one = {"sku_id": 7, "reservation_id": reservation_id, "user_id": user_id, "quantity": 1}
    return {
        "mark_sent": verbs.mark_sent(
            activity_id=42, reservation_ids=[reservation_id], lease_owner=ME
        ),
        "reschedule": verbs.reschedule(activity_id=42, items=[(reservation_id, 5)], lease_owner=ME),
        "claim_due": verbs.claim_due(
            activity_id=42, reservation_ids=[reservation_id], lease_owner=ME, lease_ms=5
        ),
        "give_back": verbs.give_back(
            activity_id=42, items=[GiveBackItem(**one, idempotency_key="k")], lease_owner=ME
        ),
        "confirm": verbs.confirm(activity_id=42, items=[(7, reservation_id)]),
        "release": verbs.release(
            activity_id=42, items=[ReleaseItem(**one, restock=True, reason="USER")]
        ),
    }


@pytest.mark.parametrize("verb", sorted(calls("", "")))
@pytest.mark.parametrize("empty", [False, True], ids=["a sale", "an empty Redis"])
def test_a_verb_on_a_missing_reservation_changes_nothing(new_sale, verb, empty) -> None:
    sale = new_sale(3)
    sale.buy("ann")
    if empty:
        sale.client.flushdb()
    before = sale.dump()
    sale.run(calls(MISSING, "ann")[verb])
    assert sale.dump() == before


@pytest.mark.parametrize("verb", sorted(calls("", "")))
def test_a_verb_on_an_id_without_a_hash_never_adds(new_sale, verb) -> None:
    """The id stands in the ZSETs, its hash is gone."""
    sale = new_sale(3)
    made = sale.buy("ann")
    sale.make_due(made.reservation_id)
    sale.client.delete(keys.reservation(42, made.reservation_id))
    names = set(sale.client.keys())

    sale.run(calls(made.reservation_id, "ann")[verb])

    assert set(sale.client.keys()) <= names
    assert set(sale.pending()) | set(sale.opened()) <= {made.reservation_id}
    if verb in {"confirm", "release"}:
        assert (sale.pending(), sale.opened()) == ({}, {})


@examples(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
def test_any_sequence_of_other_verbs_creates_nothing(new_sale, seed) -> None:
    sale = new_sale(3)
    draw = random.Random(seed)
    made = [sale.buy("ann"), sale.buy("bob")]
    ids = [r.reservation_id for r in made] + [MISSING, "rsv_2"]
    names, scored = set(sale.client.keys()), set(sale.pending()) | set(sale.opened())
    for _ in range(12):
        reservation_id = draw.choice(ids)
        if draw.random() < 0.2:
            sale.client.delete(keys.reservation(42, reservation_id))
        call = draw.choice(sorted(calls("", "")))
        sale.run(calls(reservation_id, draw.choice(["ann", "bob", "cat"]))[call])
        assert set(sale.client.keys()) <= names
        assert set(sale.pending()) | set(sale.opened()) <= scored
    sale.client.flushdb()
