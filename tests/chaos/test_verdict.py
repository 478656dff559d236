"""The verdict of a fault search: what buyers were told against what became of it."""

import time

import pytest
from ulid import ULID

from chaos import rest
from chaos.catalogue import Excuse
from dlq_admin.capture.own_rows import capture_new
from inventory import verbs
from inventory.gate import gate
from messaging import quarantine
from messaging.topology import CG_ORDER_CREATE
from tests.fixtures.sales import Sale, create_message, open_sale
from tests.fixtures.sql import execute

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]

NOTHING = frozenset({Excuse.NOTHING})


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

    assert rest._fates(promised, NOTHING, 0) == (
        [f"lost: {lost.reservation_id} was told QUEUED"],
        {},
    )


def test_a_loss_of_redis_excuses_what_lived_by_redis_alone() -> None:
    copied_ms = time.time_ns() // 1_000_000
    older, younger = (f"rsv_{ULID.from_timestamp((copied_ms + d) / 1000)}" for d in (-5_000, 5_000))
    loss = frozenset({Excuse.LOSS})

    assert rest._fates({younger: "PENDING"}, loss, copied_ms) == ([], {"pending_lost": 1})
    assert rest._fates({younger: "PENDING"}, NOTHING, copied_ms)[0] != []
    assert rest._fates({younger: "QUEUED"}, loss, copied_ms)[0] != []
    assert rest._fates({older: "PENDING"}, loss, copied_ms)[0] != []


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
    pair = tuple(f"rsv_{ULID.from_timestamp((copied_ms + ms) / 1000)}" for ms in (first, second))
    counted: dict[str, int] = {}

    found = rest._renewals([pair], frozenset({excuse}), copied_ms + 3_000, copied_ms, counted)

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
