"""The verdict of a fault search: what buyers were told against what became of it."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from ulid import ULID

from chaos import effects, rest
from chaos.buyers import Refusal
from chaos.catalogue import Excuse, may_lose_a_mail
from dlq_admin.capture.own_rows import capture_new
from inventory import keys, verbs
from inventory.gate import gate
from messaging import quarantine
from messaging.topology import CG_INVOICE, CG_NOTIFY, CG_ORDER_CREATE, CG_POINTS, CG_SETTLEMENT
from orders.effects.registry import effect_groups, effect_handlers
from orders.events import OrderRecord
from orders.payments import providers
from tests.fixtures.effects import message_of
from tests.fixtures.paid import pay_now
from tests.fixtures.sales import Sale, create_message, open_sale, run_projection
from tests.fixtures.sql import execute

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

NOTHING = frozenset({Excuse.NOTHING})
NOBODY = rest.Forgotten(from_ms=0, to_ms=0)


def rejected(sale: Sale, user: str, reason: str = "ACTIVITY_VOIDED") -> str:
    reservation = sale.reserve(user)
    execute("UPDATE inventory_activity SET voided_at = now() WHERE id = %s", sale.activity_id)
    sale.deliver(reservation)
    execute("UPDATE inventory_activity SET voided_at = NULL WHERE id = %s", sale.activity_id)
    execute(
        "UPDATE orders_reservation SET reject_reason = %s WHERE reservation_id = %s",
        reason,
        reservation.reservation_id,
    )
    return reservation.reservation_id


def test_an_order_a_reason_and_an_open_ticket_keep_a_promise_and_nothing_else_does() -> None:
    sale = open_sale()
    kept, held, lost = (sale.reserve(user) for user in ("ann", "bob", "cid"))
    sale.deliver(kept)
    sale.hold(held)
    promised = {r.reservation_id: "QUEUED" for r in (kept, held, lost)}
    promised[rejected(sale, "dan")] = "PENDING"

    assert rest._fates(promised, NOTHING, NOBODY) == (
        [f"lost: {lost.reservation_id} was told QUEUED"],
        {},
    )


def born(at_ms: int) -> str:
    return f"rsv_{ULID.from_timestamp(at_ms / 1000)}"


def test_a_loss_of_redis_excuses_what_lived_by_redis_alone() -> None:
    copied_ms = time.time_ns() // 1_000_000
    forgotten = rest.Forgotten(from_ms=copied_ms - 1_000, to_ms=copied_ms + 6_000)
    older, younger, back = (born(copied_ms + ms) for ms in (-5_000, 5_000, 7_000))
    loss = frozenset({Excuse.LOSS})

    assert rest._fates({younger: "PENDING"}, loss, forgotten) == ([], {"pending_lost": 1})
    assert rest._fates({younger: "PENDING"}, NOTHING, forgotten)[0] != []
    assert rest._fates({younger: "QUEUED"}, loss, forgotten)[0] != []
    assert rest._fates({older: "PENDING"}, loss, forgotten)[0] != []
    # Redis had come back: it was there, and the rebuild had to wait for it.
    assert rest._fates({back: "PENDING"}, loss, forgotten)[0] != []
    assert rest._fates({younger: "PENDING"}, loss, NOBODY)[0] != []


def let_die(sale: Sale, reservation_id: str) -> None:
    """Let a reservation's message die of what the search draws, and bring it to the desk."""
    (reservation,) = gate().run(
        verbs.reservations(activity_id=sale.activity_id, reservation_ids=[reservation_id])
    )
    assert reservation is not None
    quarantine.store(
        [
            quarantine.entry_of(
                create_message(reservation), group=CG_ORDER_CREATE, reason="SCHEMA_UNSUPPORTED"
            )
        ]
    )
    capture_new(after=0)


@pytest.mark.parametrize(
    ("reason", "excuse", "returned", "excused"),
    [
        ("ACTIVITY_VOIDED", Excuse.LOSS, True, False),
        ("RESERVATION_EXPIRED", Excuse.NOTHING, False, False),
        ("RESERVATION_EXPIRED", Excuse.EXPIRY, False, True),
        ("RESERVATION_EXPIRED", Excuse.LOSS, True, True),
        ("NO_FINAL_STOCK", Excuse.EXPIRY, True, False),
        ("NO_FINAL_STOCK", Excuse.LOSS, False, False),
        ("NO_FINAL_STOCK", Excuse.LOSS, True, True),
        ("DUPLICATE_ORDER", Excuse.LOSS, True, True),
    ],
)
def test_a_reject_needs_an_excuse(
    reason: str, excuse: Excuse, returned: bool, excused: bool
) -> None:
    sale = open_sale()
    returned_ms = time.time_ns() // 1_000_000 - 1_000 if returned else 0
    reservation_id = rejected(sale, "ann", reason)
    counted: dict[str, int] = {}

    found = rest._rejects(sale.activity_id, frozenset({excuse}), returned_ms, counted)

    wanted = ([], {reason: 1}) if excused else ([f"rejected: {reservation_id} {reason}"], {})
    assert (found, counted) == wanted


@pytest.mark.parametrize(
    ("first", "second", "excuse", "excused"),
    [
        (2_000, 4_000, Excuse.LOSS, True),
        (2_000, 4_000, Excuse.NOTHING, False),
        (-3_000, 4_000, Excuse.LOSS, False),  # the copy knows it
        (500, 1_500, Excuse.LOSS, False),  # Redis had not come back
    ],
)
def test_a_key_names_one_reservation_but_for_what_a_copy_forgot(
    first: int, second: int, excuse: Excuse, excused: bool
) -> None:
    copied_ms = time.time_ns() // 1_000_000
    pair = (born(copied_ms + first), born(copied_ms + second))
    forgotten = rest.Forgotten(from_ms=copied_ms - 1_000, to_ms=copied_ms + 4_000)
    counted: dict[str, int] = {}

    found = rest._renewals([pair], frozenset({excuse}), copied_ms + 3_000, forgotten, counted)

    assert (len(found), counted) == ((0, {"key_forgotten": 1}) if excused else (1, {}))


def test_a_compensated_buyer_needs_a_message_that_died() -> None:
    sale = open_sale()
    dead, alive = rejected(sale, "ann", "COMPENSATED"), rejected(sale, "bob", "COMPENSATED")
    counted: dict[str, int] = {}
    let_die(sale, dead)

    found = rest._rejects(sale.activity_id, NOTHING, 0, counted)

    assert (found, counted) == ([f"rejected: {alive} COMPENSATED"], {"COMPENSATED": 1})


def test_rest_waits_for_the_desk() -> None:
    sale = open_sale()
    assert rest.motion(sale.activity_id) == []

    let_die(sale, sale.reserve("ann").reservation_id)

    assert "1 dead messages open" in rest.motion(sale.activity_id)


@pytest.mark.parametrize(
    ("code", "ended", "excuse", "breach"),
    [
        ("SOLD_OUT", False, Excuse.NOTHING, True),
        ("SOLD_OUT", True, Excuse.NOTHING, False),  # a web process that does not know the key
        ("CLOSED", True, Excuse.NOTHING, True),
        ("ALREADY_RESERVED", False, Excuse.NOTHING, True),
        ("CLOSED", False, Excuse.LOSS, False),
    ],
)
def test_a_key_of_a_live_reservation_is_refused_by_nobody(
    code: str, ended: bool, excuse: Excuse, breach: bool
) -> None:
    sale = open_sale()
    reservation_id = rejected(sale, "ann") if ended else sale.reserve("ann").reservation_id
    refused = Refusal(reservation_id, 409, code, time.time_ns() // 1_000_000)

    found = rest._refusals([refused], frozenset({excuse}))

    assert found == ([f"the key of {reservation_id} was answered 409 {code}"] if breach else [])


def test_a_key_refused_before_its_reservation_ended_is_a_breach() -> None:
    refused_ms = time.time_ns() // 1_000_000 - 1_000
    reservation_id = rejected(open_sale(), "ann")

    assert rest._refusals([Refusal(reservation_id, 409, "SOLD_OUT", refused_ms)], NOTHING) != []


def breaches_of(sale: Sale) -> list[str]:
    found, _ = rest.breaches(
        activity_id=sale.activity_id,
        promised={},
        renewed=(),
        excuses=NOTHING,
        items_after=rest.newest_item(),
        returned_ms=0,
        copy_taken_ms=0,
    )
    return found


def test_a_buyer_whom_the_gate_forgot_a_moment_ago_is_a_breach(
    monkeypatch: pytest.MonkeyPatch, redis_client: Any
) -> None:
    monkeypatch.setattr(rest, "compare_book", lambda provider: SimpleNamespace(differences=()))
    monkeypatch.setattr(providers, "current", lambda: None)
    sale = open_sale()
    fresh = sale.reserve("ann")
    sale.deliver(fresh)
    run_projection()
    assert [line for line in breaches_of(sale) if "holder" in line] == []

    redis_client.hdel(keys.buyers(sale.activity_id, sale.sku_id), "ann")

    (line,) = [line for line in breaches_of(sale) if "holder" in line]
    assert line.startswith("order_without_holder")
    assert fresh.reservation_id in line


# -- effects ------------------------------------------------------------------------------------


def paid(sale: Sale, user: str, *, refunded: bool = False) -> OrderRecord:
    """A paid order, or one that was refunded after it; nobody has heard of either."""
    reservation = sale.reserve(user)
    sale.deliver(reservation)
    order = pay_now(order_id=reservation.order_id, payment_id=f"pay_{user}")
    if not refunded:
        return order
    execute(
        "UPDATE orders_order SET status = 'REFUNDED', aggregate_version = aggregate_version + 1"
        " WHERE order_id = %s",
        order.order_id,
    )
    return replace(order, status="REFUNDED", version=order.version + 1)


def tell(event: str, order: OrderRecord, *but: str) -> None:
    """Let every group but some hear of a fact."""
    for name, handler in effect_handlers().items():
        if name not in but:
            handler.handle([message_of(event, order)])


@pytest.mark.parametrize("missing", [group.name for group in effect_groups()])
def test_rest_waits_for_one_effect_of_each_group(missing: str) -> None:
    sale = open_sale()
    order = paid(sale, "ann")
    tell("ORDER_PAID", order, missing)
    execute("UPDATE orders_notification SET status = 'SKIPPED'")

    assert effects.look(sale.activity_id).motion() == [f"1 effects of {missing} missing"]
    assert f"1 effects of {missing} missing" in rest.motion(sale.activity_id)

    tell("ORDER_PAID", order)
    execute("UPDATE orders_notification SET status = 'SKIPPED'")
    assert effects.look(sale.activity_id) == effects.Effects(
        mails={("ORDER_PAID", order.order_id): "SKIPPED"}
    )


def test_a_refunded_order_owes_both_facts_but_no_second_score() -> None:
    sale = open_sale()
    order = paid(sale, "ann", refunded=True)
    tell("ORDER_PAID", order)
    found = effects.look(sale.activity_id)
    assert found.missing == dict.fromkeys((CG_INVOICE, CG_NOTIFY, CG_POINTS, CG_SETTLEMENT), 1)

    tell("ORDER_REFUNDED", order)
    found = effects.look(sale.activity_id)
    assert (found.missing, found.wrong) == ({}, [])


def test_an_effect_that_is_wrong_or_that_nobody_owes_is_a_breach() -> None:
    sale = open_sale()
    order = paid(sale, "ann")
    tell("ORDER_PAID", order)
    tell("ORDER_REFUNDED", order)
    execute("UPDATE orders_effect SET value = 1 WHERE consumer_group = %s AND value > 0", CG_POINTS)

    wrong = effects.look(sale.activity_id).wrong

    assert wrong[0].startswith(f"effect of {CG_POINTS}, ('ORDER_PAID', '{order.order_id}'): (1,")
    assert len([line for line in wrong if line.startswith("effect that no order owes")]) == 3
    assert wrong[-1] == f"mail that no order owes: ('ORDER_REFUNDED', '{order.order_id}')"


@pytest.mark.parametrize(
    ("status", "excused", "waits", "breach"),
    [
        ("PENDING", False, True, False),
        ("SENDING", True, True, False),
        ("SENT", False, False, False),
        ("SKIPPED", False, False, False),
        ("UNKNOWN", True, False, False),
        ("UNKNOWN", False, False, True),
        ("FAILED", True, False, True),
    ],
)
def test_a_mail_rests_when_it_is_sent(
    status: str, excused: bool, waits: bool, breach: bool
) -> None:
    found = effects.Effects(mails={("ORDER_PAID", "ord_1"): status})
    wrong = found.breaches(may_be_unknown=excused)

    assert found.motion() == (["1 mails not sent"] if waits else [])
    assert wrong == ([f"the mail ORDER_PAID of ord_1 is {status}"] if breach else [])


@pytest.mark.parametrize(
    ("name", "target", "may"),
    [
        ("kill_at_point", "notify.sending", True),
        ("kill_at_point", "web.after_send", False),
        ("kill_process", "celery", True),
        ("clock_skew", "web:+30", False),
        ("black_hole", "postgres", True),
        ("black_hole", "redis", False),
        ("postgres_kill", "", True),
    ],
)
def test_only_who_meets_the_sender_or_its_database_may_lose_a_mail(
    name: str, target: str, may: bool
) -> None:
    assert may_lose_a_mail(name, target) is may
