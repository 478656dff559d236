"""mark_sent, reschedule, claim_due, give_back, confirm and release on real Redis."""

import pytest

from inventory import keys, verbs
from inventory.contracts import (
    ConfirmCode,
    GiveBackCode,
    GiveBackItem,
    MarkCode,
    ReleaseCode,
    ReleaseItem,
    ReserveCode,
)
from inventory.errors import GateScriptError
from tests.fixtures.gate import ME, wish


def reschedule(sale, reservation_id: str, delay_ms: int, owner: str) -> MarkCode:
    (code,) = sale.run(
        verbs.reschedule(activity_id=42, items=[(reservation_id, delay_ms)], lease_owner=owner)
    )
    return code


# --- mark_sent


def test_mark_sent_leaves_the_queue_of_sends_and_ends_the_lease(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")

    assert sale.mark_sent(made) is MarkCode.OK

    stored = sale.stored(made.reservation_id)
    assert (stored["mq_status"], stored["lease_owner"], stored["status"]) == (
        "MQ_SENT",
        "",
        "RESERVED",
    )
    assert sale.pending() == {}
    assert set(sale.opened()) == {made.reservation_id}
    assert sale.mark_sent(made) is MarkCode.NOT_APPLICABLE


def test_a_mark_after_the_scanner_took_over_is_still_true(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    sale.make_due(made.reservation_id)
    sale.claim(made.reservation_id)

    assert sale.mark_sent(made, owner=ME) is MarkCode.OK

    assert sale.pending() == {}
    assert reschedule(sale, made.reservation_id, 1, "scan-1") is MarkCode.NOT_APPLICABLE
    assert sale.pending() == {}


@pytest.mark.parametrize("end", ["release", "confirm"])
def test_a_late_mark_or_confirm_after_the_end_changes_nothing(new_sale, end) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    getattr(sale, end)(made)
    before = sale.dump()

    assert sale.mark_sent(made) is MarkCode.NOT_APPLICABLE
    assert reschedule(sale, made.reservation_id, 0, ME) is MarkCode.NOT_APPLICABLE
    assert sale.confirm(made) is (
        ConfirmCode.NOT_APPLICABLE if end == "release" else ConfirmCode.ALREADY
    )
    assert sale.claim(made.reservation_id).reservations == []
    assert sale.dump() == before


# --- due_ids, claim_due, reschedule


def test_a_reservation_is_due_when_its_lease_ends_not_before(new_sale) -> None:
    sale = new_sale(3)
    first, second = sale.buy("ann"), sale.buy("bob")
    due = verbs.due_ids(activity_id=42, limit=10)
    assert sale.run(due) == []
    assert sale.claim(first.reservation_id).reservations == []  # checked again in the script

    sale.make_due(second.reservation_id)

    assert sale.run(due) == [second.reservation_id]
    (claimed,) = sale.claim(second.reservation_id, lease_ms=5_000).reservations
    assert (claimed.reservation_id, claimed.send_attempt) == (second.reservation_id, 1)
    assert claimed.message_id == second.message_id
    assert sale.run(due) == []
    stored = sale.stored(second.reservation_id)
    assert stored["lease_owner"] == "scan-1"
    assert sale.pending()[second.reservation_id] == float(stored["lease_until"])


def test_one_of_two_claimers_gets_it(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    sale.make_due(made.reservation_id)
    assert len(sale.claim(made.reservation_id, owner="scan-1").reservations) == 1
    assert sale.claim(made.reservation_id, owner="scan-2").reservations == []
    assert sale.stored(made.reservation_id)["lease_owner"] == "scan-1"


def test_a_score_that_is_due_is_not_enough_while_a_lease_runs(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    sale.client.zadd(keys.mq_pending(42), {made.reservation_id: 1})
    assert sale.claim(made.reservation_id).reservations == []
    assert sale.stored(made.reservation_id)["send_attempt"] == "0"


def test_only_the_owner_of_the_lease_reschedules(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    sale.make_due(made.reservation_id)
    sale.claim(made.reservation_id, owner="scan-1")

    assert reschedule(sale, made.reservation_id, 1_000, "scan-2") is MarkCode.NOT_APPLICABLE
    before = sale.now_ms()
    assert reschedule(sale, made.reservation_id, 60_000, "scan-1") is MarkCode.OK

    due = sale.pending()[made.reservation_id]
    assert before + 60_000 <= due <= sale.now_ms() + 60_000
    assert float(sale.stored(made.reservation_id)["next_retry_at"]) == due
    assert reschedule(sale, made.reservation_id, 0, "scan-1") is MarkCode.NOT_APPLICABLE
    assert sale.claim(made.reservation_id).reservations == []  # free, but not due


def test_reschedule_never_puts_an_id_back_that_left_the_queue(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    sale.client.zrem(keys.mq_pending(42), made.reservation_id)
    reschedule(sale, made.reservation_id, 0, ME)
    assert sale.pending() == {}


def test_each_claim_counts_as_an_attempt(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    for attempt in (1, 2, 3):
        sale.make_due(made.reservation_id)
        (claimed,) = sale.claim(made.reservation_id, owner=f"scan-{attempt}").reservations
        assert claimed.send_attempt == attempt


def test_ids_without_a_hash_are_dropped_and_counted(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    sale.make_due(made.reservation_id)
    sale.client.delete(keys.reservation(42, made.reservation_id))

    reply = sale.claim(made.reservation_id)

    assert (reply.reservations, reply.dropped) == ([], 1)
    assert sale.pending() == {}
    # The sweep drops it from here past valid_until, through `confirm`.
    assert set(sale.opened()) == {made.reservation_id}
    assert sale.confirm(made) is ConfirmCode.MISSING
    assert sale.opened() == {}
    assert sale.holders() == {"ann": made.reservation_id}  # the reconciler's business


def test_ids_that_have_no_business_in_the_queue_leave_it(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    sale.mark_sent(made)
    sale.client.zadd(keys.mq_pending(42), {made.reservation_id: 1})
    reply = sale.claim(made.reservation_id)
    assert (reply.reservations, reply.dropped, sale.pending()) == ([], 0, {})


# --- give_back


def test_give_back_restores_everything(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann", idempotency_key="k")
    version = sale.state().version

    assert sale.give_back(made) is GiveBackCode.OK

    assert (sale.stock(), sale.holders(), sale.pending(), sale.opened()) == (3, {}, {}, {})
    assert sale.client.exists(keys.request(42, "ann", "k")) == 0
    assert sale.stored(made.reservation_id)["status"] == "RELEASED"
    assert sale.state().version > version
    assert sale.give_back(made) is GiveBackCode.RELEASED
    assert sale.stock() == 3
    assert sale.code("ann", idempotency_key="k") is ReserveCode.RESERVED


def claimed(sale, made) -> None:
    sale.make_due(made.reservation_id)
    sale.claim(made.reservation_id, owner=ME)


@pytest.mark.parametrize(
    ("touch", "owner", "code"),
    [
        (lambda sale, made: None, "web-2", GiveBackCode.REFUSED),
        (lambda sale, made: sale.make_due(made.reservation_id), ME, GiveBackCode.REFUSED),
        (claimed, ME, GiveBackCode.REFUSED),
        (lambda sale, made: sale.reserve(wish("ann")), ME, GiveBackCode.REFUSED),
        (lambda sale, made: sale.mark_sent(made), ME, GiveBackCode.REFUSED),
        (lambda sale, made: sale.confirm(made), ME, GiveBackCode.REFUSED),
        (lambda sale, made: sale.rebuilding(), ME, GiveBackCode.REFUSED),
        (lambda sale, made: sale.release(made), ME, GiveBackCode.RELEASED),
        (
            lambda sale, made: sale.client.delete(keys.reservation(42, made.reservation_id)),
            ME,
            GiveBackCode.MISSING,
        ),
        (lambda sale, made: sale.client.delete(keys.gate(42, 7)), ME, GiveBackCode.MISSING),
        (lambda sale, made: sale.client.delete(keys.stock(42, 7)), ME, GiveBackCode.MISSING),
    ],
    ids=[
        "another's lease",
        "lease ran out",
        "claimed by a scanner of the same name",
        "observed",
        "sent",
        "confirmed",
        "rebuilding",
        "released",
        "hash gone",
        "gate lost",
        "stock lost",
    ],
)
def test_give_back_is_a_compare_and_set(new_sale, touch, owner, code) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    touch(sale, made)
    before = sale.dump()

    assert sale.give_back(made, owner=owner) is code

    assert sale.dump() == before


def test_a_batch_of_give_backs_is_judged_one_by_one(new_sale) -> None:
    sale = new_sale(5)
    ann, bob, cat = sale.buy("ann"), sale.buy("bob"), sale.buy("cat")
    sale.mark_sent(bob)
    items = [
        GiveBackItem(
            sku_id=7,
            reservation_id=r.reservation_id,
            user_id=r.user_id,
            quantity=1,
            idempotency_key=sale.request_of(r).idempotency_key,
        )
        for r in (ann, bob, cat, ann)
    ]
    codes = sale.run(verbs.give_back(activity_id=42, items=items, lease_owner=ME))
    assert [c.name for c in codes] == ["OK", "REFUSED", "OK", "RELEASED"]
    assert (sale.stock(), set(sale.holders())) == (4, {"bob"})


# --- confirm


def test_confirm_ends_the_wait(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    assert sale.confirm(made) is ConfirmCode.OK
    stored = sale.stored(made.reservation_id)
    assert (stored["status"], stored["mq_status"]) == ("CONFIRMED", "MQ_SENT")
    assert (sale.pending(), sale.opened(), sale.stock()) == ({}, {}, 2)
    assert sale.confirm(made) is ConfirmCode.ALREADY
    assert sale.holders() == {"ann": made.reservation_id}


def test_a_confirmed_reservation_can_be_released(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    sale.confirm(made)
    assert sale.release(made).given_back == 1
    assert sale.stored(made.reservation_id)["status"] == "RELEASED"
    assert sale.stock() == 3


# --- release


def test_release_gives_back_once_and_frees_the_buyer(new_sale) -> None:
    sale = new_sale(3, limit_per_user=2)
    made = sale.buy("ann", quantity=2)
    replies = [sale.release(made) for _ in range(3)]
    assert [(r.code, r.given_back) for r in replies] == [
        (ReleaseCode.OK, 2),
        (ReleaseCode.OK, 0),
        (ReleaseCode.OK, 0),
    ]
    assert (sale.stock(), sale.holders(), sale.pending(), sale.opened()) == (3, {}, {}, {})
    assert sale.stored(made.reservation_id)["reject_reason"] == "PAYMENT_TIMEOUT"


def test_release_without_restock_frees_the_buyer_only(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    version = sale.state().version
    assert sale.release(made, restock=False).given_back == 0
    assert (sale.stock(), sale.holders()) == (2, {})
    assert sale.state().version > version
    assert sale.release(made).given_back == 0  # it cannot be made up for later
    assert sale.stock() == 2


def test_the_same_reservation_twice_in_a_batch_is_given_back_once(new_sale) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    item = ReleaseItem(
        sku_id=7,
        reservation_id=made.reservation_id,
        user_id="ann",
        quantity=1,
        restock=True,
        reason="USER",
    )
    replies = sale.run(verbs.release(activity_id=42, items=[item, item]))
    assert [r.given_back for r in replies] == [1, 0]
    assert sale.stock() == 3


@pytest.mark.parametrize("lost", [keys.gate, keys.stock])
def test_release_at_a_lost_gate_must_be_repeated(new_sale, lost) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    sale.client.delete(lost(42, 7))
    before = sale.dump()
    reply = sale.release(made)
    assert (reply.code, reply.given_back) == (ReleaseCode.RETRY, 0)
    assert sale.dump() == before


def test_one_skus_rebuild_does_not_stop_the_others(new_sale) -> None:
    sale = new_sale(3, sku_ids=(7, 8))
    ann, bob = sale.buy("ann"), sale.buy("bob", sku_id=8)
    sale.client.hset(keys.gate(42, 7), "status", "REBUILDING")
    items = [
        ReleaseItem(
            sku_id=r.sku_id,
            reservation_id=r.reservation_id,
            user_id=r.user_id,
            quantity=1,
            restock=True,
            reason="USER",
        )
        for r in (ann, bob)
    ]
    replies = sale.run(verbs.release(activity_id=42, items=items))
    assert [r.code for r in replies] == [ReleaseCode.RETRY, ReleaseCode.OK]
    assert (sale.stock(7), sale.stock(8)) == (2, 3)
    assert ann.reservation_id in sale.opened()


@pytest.mark.parametrize("quantity", ["x", 0, -1])
def test_an_ill_item_in_the_middle_changes_nothing(new_sale, quantity) -> None:
    sale = new_sale(3)
    made = sale.buy("ann")
    good = {"sku_id": 7, "user_id": "ann", "reservation_id": made.reservation_id}
    items = [
        ReleaseItem(**good, quantity=1, restock=True, reason="USER"),
        ReleaseItem(**good, quantity=quantity, restock=True, reason="USER"),
    ]
    before = sale.dump()
    with pytest.raises(GateScriptError, match="item 2"):
        sale.run(verbs.release(activity_id=42, items=items))
    assert sale.dump() == before
