"""reserve.lua on real Redis: every answer, in the order of its checks."""

import pytest

from inventory import keys, verbs
from inventory.contracts import GiveBackCode, ReserveCode
from inventory.errors import GateScriptError, GateUnavailable
from inventory.gate import Gate
from inventory.states import GateStatus
from tests.fixtures.gate import ME, wish

DAY_MS = 86_400_000


def test_a_reservation_is_stored_whole_and_takes_one_unit(new_sale) -> None:
    sale = new_sale(3, validity_ms=300_000)
    request = wish("ann")

    (reply,) = sale.reserve(request, lease_ms=1_000)

    made = reply.reservation
    assert (reply.code, reply.stock_left, sale.stock()) == (ReserveCode.RESERVED, 2, 2)
    assert made.valid_until_ms == made.created_at_ms + 300_000
    due = str(made.created_at_ms + 1_000)
    assert sale.stored(request.reservation_id) == {
        "request_id": request.request_id,
        "order_id": request.order_id,
        "message_id": request.message_id,
        "user_id": "ann",
        "sku_id": "7",
        "quantity": "1",
        "status": "RESERVED",
        "mq_status": "MQ_PENDING",
        "created_at": str(made.created_at_ms),
        "valid_until": str(made.valid_until_ms),
        "traceparent": request.traceparent,
        "lease_owner": ME,
        "lease_until": due,
        "next_retry_at": due,
        "send_attempt": "0",
        "observed": "0",
    }
    assert sale.holders() == {"ann": request.reservation_id}
    assert sale.pending() == {request.reservation_id: float(due)}
    assert sale.opened() == {request.reservation_id: float(made.valid_until_ms)}
    # The record of the answer is the one that the scanner will read: resends are the same bytes.
    (read,) = sale.run(verbs.reservations(activity_id=42, reservation_ids=[request.reservation_id]))
    assert read == made


def test_reservation_keys_live_until_the_sales_end_and_seven_days(new_sale) -> None:
    sale = new_sale(1)
    made = sale.buy("ann")
    request = sale.request_of(made)
    expected = sale.state().config.ends_ms + 7 * DAY_MS

    for key in (
        keys.reservation(42, made.reservation_id),
        keys.request(42, "ann", request.idempotency_key),
    ):
        assert abs(sale.now_ms() + sale.client.pttl(key) - expected) < 1_000


def test_a_user_who_asks_twice_holds_once(new_sale) -> None:
    """Case 1: the duplicate check comes before the stock; case 2: one unit, not two."""
    sale = new_sale(2)
    first = sale.buy("ann")

    (again,) = sale.reserve(wish("ann"))

    assert again.code is ReserveCode.ALREADY_RESERVED
    assert again.reservation == first
    assert sale.stock() == 1
    sale.buy("bob")
    assert sale.code("cat") is ReserveCode.SOLD_OUT
    assert set(sale.holders()) == {"ann", "bob"}


def test_a_unit_that_came_back_sells_again(new_sale) -> None:
    """Case 3: 100 buyers at one unit, it comes back, and is sold once more; never below 0."""
    sale = new_sale(1)
    replies = sale.reserve(*[wish(f"u{n}") for n in range(100)])
    assert [r.code for r in replies].count(ReserveCode.RESERVED) == 1
    assert sale.stock() == 0
    before = sale.state().version

    assert sale.release(replies[0].reservation).given_back == 1

    assert sale.state().version > before  # what was remembered of "sold out" is void now
    assert sale.code("late") is ReserveCode.RESERVED
    assert sale.stock() == 0


def test_the_first_buyer_of_an_empty_set_is_served(new_sale) -> None:
    """Case 4: in Lua 0 is true; a missing buyer is false."""
    sale = new_sale(1)
    assert sale.client.exists(keys.buyers(42, 7)) == 0
    assert sale.code("ann") is ReserveCode.RESERVED


def test_n_units_sell_to_n_of_n_plus_one_sequential_buyers(new_sale) -> None:
    """Case 5."""
    sale = new_sale(5)
    codes = [sale.code(f"u{n}") for n in range(6)]
    assert codes == [ReserveCode.RESERVED] * 5 + [ReserveCode.SOLD_OUT]
    assert sale.stock() == 0


@pytest.mark.parametrize(
    ("starts", "ends", "code"),
    [
        (+5_000, +9_000, ReserveCode.NOT_STARTED),
        (-9_000, -1, ReserveCode.ENDED),
        (-9_000, 0, ReserveCode.ENDED),
    ],
)
def test_redis_time_decides_about_the_window(new_sale, starts, ends, code) -> None:
    """Case 6: whatever the clock of the process says."""
    sale = new_sale(1)
    now = sale.now_ms()
    sale.edit(starts_ms=now + starts, ends_ms=now + ends)
    assert sale.code("ann") is code
    assert sale.stock() == 1
    assert sale.holders() == {}


@pytest.mark.parametrize(
    ("quantity", "code"),
    [
        (0, ReserveCode.LIMIT_EXCEEDED),
        (-1, ReserveCode.LIMIT_EXCEEDED),
        (3, ReserveCode.LIMIT_EXCEEDED),
        (200, ReserveCode.LIMIT_EXCEEDED),
        (10**9, ReserveCode.LIMIT_EXCEEDED),
        (2, ReserveCode.RESERVED),
    ],
)
def test_the_limit_is_the_gates(new_sale, quantity, code) -> None:
    """Case 22."""
    sale = new_sale(5, limit_per_user=2)
    assert sale.code("ann", quantity=quantity) is code
    assert sale.stock() == (3 if code is ReserveCode.RESERVED else 5)


def test_a_quantity_is_served_whole_or_not_at_all(new_sale) -> None:
    sale = new_sale(1, limit_per_user=2)
    (reply,) = sale.reserve(wish("ann", quantity=2))
    assert (reply.code, reply.stock_left) == (ReserveCode.SOLD_OUT, 1)
    assert sale.code("bob", quantity=1) is ReserveCode.RESERVED


def test_the_same_key_answers_with_the_same_reservation(new_sale) -> None:
    sale = new_sale(5)
    first = sale.buy("ann", idempotency_key="k")

    (again,) = sale.reserve(wish("ann", idempotency_key="k"))

    assert again.code is ReserveCode.REQUEST_REPLAYED
    assert again.reservation == first
    assert sale.stored(first.reservation_id)["observed"] == "1"
    assert sale.stock() == 4


def test_the_same_key_for_another_sku_is_a_conflict(new_sale) -> None:
    """Case 23."""
    sale = new_sale(5, sku_ids=(7, 8))
    sale.buy("ann", idempotency_key="k")

    (other,) = sale.reserve(wish("ann", sku_id=8, idempotency_key="k"))

    assert (other.code, other.reservation) == (ReserveCode.REQUEST_CONFLICT, None)
    assert (sale.stock(7), sale.stock(8)) == (4, 5)


def test_users_whose_id_and_key_read_alike_get_their_own(new_sale) -> None:
    """Ids and keys may both hold ':'."""
    sale = new_sale(5)
    ann = sale.buy("shop", idempotency_key="7:k1")

    bob, again = sale.reserve(
        wish("shop:7", idempotency_key="k1"), wish("shop", idempotency_key="7:k1")
    )

    assert (bob.code, bob.reservation.user_id) == (ReserveCode.RESERVED, "shop:7")
    assert (again.code, again.reservation) == (ReserveCode.REQUEST_REPLAYED, ann)
    assert sale.holders().keys() == {"shop", "shop:7"}
    assert sale.give_back(bob.reservation) is GiveBackCode.OK
    assert sale.client.exists(keys.request(42, "shop", "7:k1")) == 1
    assert sale.stock() == 4


def test_keys_belong_to_their_user(new_sale) -> None:
    sale = new_sale(5)
    sale.buy("ann", idempotency_key="k")
    assert sale.code("bob", idempotency_key="k") is ReserveCode.RESERVED


def test_a_key_of_an_ended_reservation_says_so_with_its_reason(new_sale) -> None:
    sale = new_sale(5)
    first = sale.buy("ann", idempotency_key="k")
    sale.release(first)

    (again,) = sale.reserve(wish("ann", idempotency_key="k"))

    assert again.code is ReserveCode.RESERVATION_ENDED
    assert again.reservation.reservation_id == first.reservation_id
    assert (again.reservation.status, again.reservation.reject_reason) == (
        "RELEASED",
        "PAYMENT_TIMEOUT",
    )
    assert sale.code("ann") is ReserveCode.RESERVED  # a new key, a new try


def test_a_repeat_after_a_lost_answer_names_the_callers_own_reservation(new_sale) -> None:
    """Case 34: the script ran, its reply was lost, the same call is made again."""
    sale = new_sale(5)
    request = wish("ann")
    sale.reserve(request)  # this answer is lost

    (again,) = sale.reserve(request)

    assert again.code is ReserveCode.REQUEST_REPLAYED
    assert again.reservation.reservation_id == request.reservation_id
    assert sale.stored(request.reservation_id)["observed"] == "0"  # nobody else has seen it
    assert sale.stock() == 4


@pytest.mark.parametrize(
    "refuse",
    [
        lambda sale: sale.close(GateStatus.CLOSED),
        lambda sale: sale.close(GateStatus.PAUSED),
        lambda sale: sale.edit(ends_ms=sale.now_ms() - 1),
        lambda sale: sale.edit(max_open=0),
        lambda sale: sale.edit(max_pending=0),
        lambda sale: sale.rebuilding(),
    ],
    ids=["closed", "paused", "ended", "open limit", "pending limit", "rebuilding"],
)
def test_holders_are_answered_whatever_the_gates_status(new_sale, refuse) -> None:
    sale = new_sale(5)
    mine = sale.buy("ann", idempotency_key="k")
    refuse(sale)

    by_key, by_user, by_id = sale.reserve(
        wish("ann", idempotency_key="k"), wish("ann"), sale.request_of(mine)
    )

    assert (by_key.code, by_user.code, by_id.code) == (
        ReserveCode.REQUEST_REPLAYED,
        ReserveCode.ALREADY_RESERVED,
        ReserveCode.REQUEST_REPLAYED,
    )
    assert sale.code("bob") in {ReserveCode.CLOSED, ReserveCode.ENDED, ReserveCode.BUSY}
    assert sale.stock() == 4


def test_checks_are_made_in_the_order_of_the_protocol(new_sale) -> None:
    """Each gate refuses for all later reasons too; the answer is the earliest one's."""
    sale = new_sale(0, max_open=0, max_pending=0)
    now = sale.now_ms()
    assert sale.code("u", quantity=1) is ReserveCode.SOLD_OUT
    assert sale.code("u", quantity=9) is ReserveCode.LIMIT_EXCEEDED
    sale.edit(ends_ms=now, max_open=0)
    assert sale.code("u", quantity=9) is ReserveCode.ENDED
    sale.close()
    assert sale.code("u", quantity=9) is ReserveCode.CLOSED
    sale.client.delete(keys.gate(42, 7))
    assert sale.code("u", quantity=9) is ReserveCode.GATE_LOST


@pytest.mark.parametrize("limit", ["max_open", "max_pending"])
def test_the_brake_holds_within_and_between_batches(new_sale, limit) -> None:
    sale = new_sale(100, **{limit: 3})
    codes = [r.code for r in sale.reserve(*[wish(f"u{n}") for n in range(5)])]
    assert codes == [ReserveCode.RESERVED] * 3 + [ReserveCode.BUSY] * 2
    assert sale.code("v") is ReserveCode.BUSY
    assert sale.stock() == 97


def test_a_pending_brake_opens_when_messages_are_sent(new_sale) -> None:
    sale = new_sale(100, max_pending=1)
    first = sale.buy("ann")
    assert sale.code("bob") is ReserveCode.BUSY
    sale.mark_sent(first)
    assert sale.code("bob") is ReserveCode.RESERVED


@pytest.mark.parametrize("gone", [keys.gate, keys.stock])
def test_a_gate_without_its_keys_is_lost_never_sold_out(new_sale, gone) -> None:
    sale = new_sale(5)
    mine = sale.buy("ann")
    sale.client.delete(gone(42, 7))
    before = sale.dump()

    replies = sale.reserve(wish("bob"), wish("ann"), sale.request_of(mine))

    assert [r.code for r in replies] == [ReserveCode.GATE_LOST] * 3
    assert {(r.stock_left, r.gate_version) for r in replies} == {(-1, -1)}
    assert sale.dump() == before


def test_a_batch_answers_each_request_apart(new_sale) -> None:
    sale = new_sale(2, sku_ids=(7, 8), limit_per_user=2)
    ann, bob = wish("ann", idempotency_key="k"), wish("bob", sku_id=8, quantity=2)

    replies = sale.reserve(
        ann,
        wish("ann", idempotency_key="k"),  # replay within the batch
        wish("ann"),  # holds already, within the batch
        wish("ann", sku_id=8, idempotency_key="k", fingerprint="other"),  # conflict
        bob,
        wish("cat", sku_id=8),  # sold out by bob
        wish("dan", quantity=3),
        wish("dan"),
        ann,  # its own id again
    )

    assert [r.code.name for r in replies] == [
        "RESERVED",
        "REQUEST_REPLAYED",
        "ALREADY_RESERVED",
        "REQUEST_CONFLICT",
        "RESERVED",
        "SOLD_OUT",
        "LIMIT_EXCEEDED",
        "RESERVED",
        "REQUEST_REPLAYED",
    ]
    assert [r.stock_left for r in replies] == [1, 1, 1, 2, 0, 0, 1, 0, 0]
    for reply in (replies[1], replies[2], replies[8]):
        assert reply.reservation == replies[0].reservation
    assert sale.stored(ann.reservation_id)["observed"] == "1"
    assert sale.stored(bob.reservation_id)["observed"] == "0"
    assert (sale.stock(7), sale.stock(8)) == (0, 0)
    assert len(sale.pending()) == len(sale.opened()) == 3


def test_holders_of_earlier_batches_cost_one_more_round_trip_only(new_sale, monkeypatch) -> None:
    sale = new_sale(50)
    old = [sale.buy(f"u{n}") for n in range(4)]
    sent = []
    send = Gate._send
    monkeypatch.setattr(Gate, "_send", lambda self, call: sent.append(call) or send(self, call))

    replies = sale.reserve(wish("new"), *[wish(f"u{n}") for n in range(4)], wish("newer"))

    assert [r.code.name for r in replies] == ["RESERVED", *["ALREADY_RESERVED"] * 4, "RESERVED"]
    assert [r.reservation for r in replies[1:5]] == old
    assert len(sent) == 2
    assert all(sale.stored(r.reservation_id)["observed"] == "1" for r in old)


def test_a_reservation_that_keeps_changing_ends_in_unknown(new_sale, monkeypatch) -> None:
    """Each time the script names another one: bounded, and the caller may ask again."""
    sale = new_sale(50)
    sale.buy("ann")
    send, n = Gate._send, iter(range(100))

    def competitor(self: Gate, call):
        sale.client.hset(keys.buyers(42, 7), "ann", f"rsv_other{next(n)}")
        return send(self, call)

    monkeypatch.setattr(Gate, "_send", competitor)
    with pytest.raises(GateUnavailable, match="kept changing"):
        sale.reserve(wish("ann"))
    assert sale.stock() == 49


def test_a_holder_without_a_hash_is_named_by_id(new_sale) -> None:
    """After a rebuild: buyers names reservations that only PostgreSQL remembers."""
    sale = new_sale(5)
    sale.client.hset(keys.buyers(42, 7), "ann", "rsv_old")
    before = sale.dump()

    (reply,) = sale.reserve(wish("ann"))

    assert reply.code is ReserveCode.ALREADY_RESERVED
    assert (reply.reservation.reservation_id, reply.reservation.status) == ("rsv_old", "")
    assert sale.dump() == before


@pytest.mark.parametrize(
    "bad", [{"quantity": "1.5"}, {"quantity": "x"}, {"user_id": ""}, {"reservation_id": ""}]
)
def test_an_ill_argument_in_the_middle_of_a_batch_changes_nothing(new_sale, bad) -> None:
    sale = new_sale(5)
    before = sale.dump()
    with pytest.raises(GateScriptError, match="ill argument in request 2"):
        sale.reserve(wish("ann"), wish("bob", **bad), wish("cat"))
    assert sale.dump() == before


@pytest.mark.parametrize("wrong", ["reservation", "buyers", "mq_pending", "stock"])
def test_a_key_of_a_wrong_type_in_the_middle_changes_nothing(new_sale, wrong) -> None:
    """Lua rolls nothing back: all is read before anything is written."""
    sale = new_sale(5)
    ann, bob, cat = wish("ann"), wish("bob"), wish("cat")
    key = {
        "reservation": keys.reservation(42, bob.reservation_id),
        "buyers": keys.buyers(42, 7),
        "mq_pending": keys.mq_pending(42),
        "stock": keys.stock(42, 7),
    }[wrong]
    sale.client.delete(key)
    sale.client.lpush(key, "not what it should be")
    before = sale.dump()

    with pytest.raises(GateScriptError, match="WRONGTYPE"):
        sale.reserve(ann, bob, cat)

    assert sale.dump() == before


def test_an_empty_batch_is_answered_with_nothing(new_sale) -> None:
    sale = new_sale(5)
    assert sale.reserve() == []
