"""What must hold after every step of a sale's life, and what must hold when it has come to rest."""

from typing import Final

from inventory import verbs
from inventory.gate import gate
from messaging.topology import CG_ORDER_CREATE
from orders import invariants
from orders.payments.money import compare_book, money_breaches
from tests.fixtures.sql import one, rows
from tests.invariants.life import PAY_WINDOW_S, Life

_ONE_LOOK: Final = """
SELECT s.available, s.initial + s.topped_up - s.cut, s.withheld,
  s.withheld >= 0 AND s.available >= 0,
  (SELECT coalesce(sum(l.delta), 0)::bigint FROM inventory_stockledger l WHERE l.sku_id = s.sku_id),
  (SELECT coalesce(sum(o.quantity), 0)::bigint FROM orders_order o
    WHERE o.sku_id = s.sku_id AND o.status NOT IN ('CANCELED', 'REFUNDED')),
  (SELECT count(*) - count(DISTINCT o.user_id) FROM orders_order o
    WHERE o.sku_id = s.sku_id AND o.status NOT IN ('CANCELED', 'REFUNDED')),
  (SELECT coalesce(array_agg(DISTINCT r.reject_reason), '{}') FROM orders_reservation r
    WHERE r.sku_id = s.sku_id AND r.outcome = 'REJECTED'),
  (SELECT a.status FROM inventory_activity a WHERE a.id = s.activity_id),
  EXISTS (SELECT 1 FROM inventory_gateoperation g
    WHERE g.activity_id = s.activity_id AND g.status = 'REQUESTED')
  FROM inventory_stock s WHERE s.sku_id = %s
"""
_HOLDERS: Final = """
SELECT user_id, reservation_id FROM orders_order
 WHERE sku_id = %s AND status NOT IN ('CANCELED', 'REFUNDED')
"""
_WITH_OUTCOME: Final = """
SELECT reservation_id FROM orders_reservation WHERE reservation_id = ANY(%s::text[])
"""
# Time passed them, or a person ended them: nobody else may be rejected.
_HONEST_REASONS: Final = {"RESERVATION_EXPIRED", "COMPENSATED"}

_UNREST: Final = """
SELECT (SELECT count(*) FROM orders_reservation WHERE activity_id = %s AND release_state = 'DUE')
     + (SELECT count(*) FROM messaging_outbox WHERE state = 0)
     + (SELECT count(*) FROM orders_payment_attempt WHERE next_try_at IS NOT NULL)
     + (SELECT count(*) FROM orders_refund WHERE next_try_at IS NOT NULL)
     + (SELECT count(*) FROM inventory_gateoperation WHERE status = 'REQUESTED')
"""
_ANSWERED: Final = """
SELECT p.id FROM unnest(%s::text[]) AS p(id)
 WHERE NOT EXISTS (SELECT 1 FROM orders_reservation r
                    WHERE r.reservation_id = p.id
                      AND (r.outcome = 'ORDERED' OR r.reject_reason <> ''))
   AND NOT EXISTS (SELECT 1 FROM messaging_quarantine q
                    WHERE q.reservation_id = p.id AND q.status = 'OPEN')
"""
# What a provider should hold of each order: the price while it is paid, refunds that failed.
_MONEY_HELD: Final = """
SELECT o.order_id, (CASE WHEN o.status = 'PAID' THEN o.amount_cents ELSE 0 END
    + (SELECT coalesce(sum(r.amount_cents), 0) FROM orders_refund r
        WHERE r.order_id = o.order_id AND r.status = 'FAILED'))::bigint
  FROM orders_order o
"""
_EXPECTED_ITEMS: Final = {(CG_ORDER_CREATE, "HANDLER_BUG"), ("REFUND", "REFUND_FAILED")}
# Long enough for a scan, a resend and a delivery, whatever had happened before.
_SECONDS_OF_ROUNDS: Final = (2, 11, 11, 45, 61, 61, 310, *[61] * 20)
_SURELY_IN_TIME_S: Final = 100


def assert_safe(life: Life, *, rebuilding: bool = False) -> None:
    """Nothing is oversold, promised twice, booked twice, or paid and forgotten: at any moment.

    While the gate is being rebuilt it may be shut whatever the sale's status is.
    """
    ((available, supply, withheld, sane, ledger, live, doubles, reasons, status, moving),) = rows(
        _ONE_LOOK, life.sale.sku_id
    )
    assert sane, "stock below zero"
    assert live <= supply, "oversold"
    assert supply == available + live + withheld, "units appeared or vanished"
    assert ledger == available, "the ledger tells another stock"
    assert doubles == 0, "two live orders of one buyer"
    assert set(reasons) <= _HONEST_REASONS, "an accepted buyer was rejected"
    _assert_tickets_decide(life)
    open_ids = sorted(life.sale.open_ids())
    ended = {row[0] for row in rows(_WITH_OUTCOME, open_ids)}
    waiting = gate().run(
        verbs.reservations(
            activity_id=life.sale.activity_id,
            reservation_ids=[one for one in open_ids if one not in ended],
        )
    )
    state = gate().run(verbs.gate_state(activity_id=life.sale.activity_id, sku_id=life.sale.sku_id))
    assert state is not None
    promised = state.stock + sum(one.quantity for one in waiting if one is not None)
    assert promised <= available, "the gate promises more than there is"
    if not moving and not rebuilding:
        sells = state.status == "OPEN" and not state.stopped
        assert sells == (status == "OPEN"), "the gate is not in the status of the sale"
    assert money_breaches(life.sale.activity_id) == []


def _assert_tickets_decide(life: Life) -> None:
    """What a ticket holds becomes an order, or is rejected by its ticket; by nobody else."""
    before, life.held = life.held, set(_held(life).values())
    for reservation_id, reason in rows(
        "SELECT reservation_id, reject_reason FROM orders_reservation"
        " WHERE reservation_id = ANY(%s::text[])",
        sorted(before - life.held),
    ):
        assert reason in {"", "COMPENSATED"}, f"{reservation_id} was held, and is {reason}"


def assert_no_breach(life: Life) -> None:
    """The whole check that operators run finds nothing, also in full motion."""
    report = invariants.check(life.sale.activity_id)
    assert [(b.kind, b.rule, b.samples) for b in report.breaches] == []


def drive_to_rest(life: Life) -> None:
    """Switch every fault off and let all loops work until nothing is left to do."""
    life.calm_down()
    in_time = _still_valid(life)
    _work(life)
    ordered = rows("SELECT reservation_id FROM orders_reservation WHERE outcome = 'ORDERED'")
    assert in_time <= {row[0] for row in ordered}, "accepted and valid, but not ordered in time"


def let_payments_end(life: Life) -> None:
    """The pay window passes: whoever has not paid by now has no order any more."""
    life.pass_time(PAY_WINDOW_S + 60)
    _work(life)
    assert one("SELECT count(*) FROM orders_order WHERE status IN ('CREATED', 'PAYING')") == 0


def _work(life: Life) -> None:
    for seconds in _SECONDS_OF_ROUNDS:
        life.work_once()
        assert_safe(life)
        if _at_rest(life):
            return
        life.pass_time(seconds)
    raise AssertionError(f"no rest: {invariants.check(life.sale.activity_id).as_json()}")


def assert_rest_is_right(life: Life) -> None:
    """At rest: every buyer has his answer, every unit and every cent is where it belongs."""
    found = invariants.check(life.sale.activity_id)
    assert [(b.kind, b.rule, b.samples) for b in found.breaches] == []
    assert (found.in_motion, found.sales[0].motion) == (False, ())
    report = found.as_json()
    assert (report["lost"], report["duplicates"], report["oversold"]) == (0, 0, 0)
    assert life.sale.holders() == dict(rows(_HOLDERS, life.sale.sku_id)) | _held(life)
    assert rows(_ANSWERED, sorted(life.promised)) == [], "answered 202, and nothing came of it"
    given_back = one(
        "SELECT count(*) FROM orders_reservation WHERE reservation_id = ANY(%s::text[])",
        sorted(life.refused),
    )
    assert given_back == 0, "told that the send failed, and ordered all the same"
    settled = one("SELECT coalesce(sum(value), 0)::bigint FROM orders_effect")
    kept = one(
        "SELECT coalesce(sum(amount_cents), 0)::bigint FROM orders_order"
        " WHERE status IN ('PAID', 'REFUNDING')"
    )
    assert settled == kept, "an effect of a payment or refund is missing, or happened twice"
    assert list(compare_book(life.provider).differences) == []
    for order_id, ours in rows(_MONEY_HELD):
        assert life.provider.book_.net_cents(order_id) == ours, f"{order_id}: the provider differs"
    items = rows("SELECT consumer_group, reason FROM messaging_quarantine WHERE status = 'OPEN'")
    assert set(items) <= _EXPECTED_ITEMS, "something failed that no fault explains"
    untold = one(
        "SELECT count(*) FROM orders_refund r WHERE status = 'FAILED' AND NOT EXISTS"
        " (SELECT 1 FROM messaging_quarantine q WHERE q.message_id = r.refund_id"
        " AND q.status = 'OPEN')"
    )
    assert untold == 0, "a refund failed, and nobody is told"


def _still_valid(life: Life) -> set[str]:
    """Reservations that must become orders now: alive, in time, held by no ticket, never lost."""
    ids = sorted(life.sale.open_ids())
    found = gate().run(verbs.reservations(activity_id=life.sale.activity_id, reservation_ids=ids))
    latest = life.clock.now_ms + _SURELY_IN_TIME_S * 1000
    alive = {r.reservation_id for r in found if r is not None and r.valid_until_ms > latest}
    settled = {row[0] for row in rows(_WITH_OUTCOME, ids)}
    return alive - settled - set(_held(life).values()) - life.lost


def _held(life: Life) -> dict[str, str]:
    """What tickets hold: buyer and reservation."""
    return dict(
        rows(
            "SELECT q.user_id, q.reservation_id FROM messaging_quarantine q WHERE q.status = 'OPEN'"
            " AND q.activity_id = %s AND NOT EXISTS (SELECT 1 FROM orders_reservation r"
            " WHERE r.reservation_id = q.reservation_id)",
            life.sale.activity_id,
        )
    )


def _at_rest(life: Life) -> bool:
    stats = gate().run(verbs.pending_stats(activity_id=life.sale.activity_id))
    return (
        stats.pending == 0
        and life.wire.waiting == 0
        and not life.provider.book_.events
        and not life.sale.open_ids() - set(_held(life).values())
        and one(_UNREST, life.sale.activity_id) == 0
    )
