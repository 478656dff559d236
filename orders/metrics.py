"""All metrics of orders: names as in docs/metrics.md."""

import time
from collections.abc import Iterable
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from messaging.envelope import parse_instant

ORDER_TX_LATENCY: Final = Histogram(
    "order_tx_latency_seconds",
    "The order transaction, one batch, from BEGIN to COMMIT.",
    buckets=(0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5),
)
AFTER_RESERVATION: Final = Histogram(
    "order_after_reservation_seconds",
    "From the reservation at the gate to the committed order.",
    buckets=(0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30, 60, 300),
)
ORDERS_CREATED: Final = Counter("order_created_total", "Orders committed.")
CANCEL_MESSAGE: Final = Counter("cancel_message_total", "Cancel triggers looked at.")
CANCEL_TRANSITION: Final = Counter("cancel_transition_success_total", "Orders cancelled.")
CANCEL_NOOP_PAID: Final = Counter("cancel_noop_paid_total", "Triggers that found a paid order.")
CANCEL_NOOP_NOT_EXPIRED: Final = Counter(
    "cancel_noop_not_expired_total", "Triggers that came before the order's expiry."
)
CANCEL_NOOP_CANCELED: Final = Counter(
    "cancel_noop_canceled_total", "Triggers that found a cancelled order."
)
CANCEL_NOOP_MISSING: Final = Counter("cancel_noop_missing_total", "Triggers without an order.")
RELEASE: Final = Counter(
    "reservation_release_total", "Releases driven at the gate.", ["result"]
)  # done, deferred
CONFIRM: Final = Counter(
    "reservation_confirm_total", "Confirms at the gate.", ["result"]
)  # the names of ConfirmCode, in lower case; unavailable
RESEND: Final = Counter(
    "reservation_resend_total", "Messages sent again by scanner and sweep.", ["outcome"]
)
MQ_PENDING: Final = Gauge(
    "reservation_mq_pending",
    "Reservations not known to be in the broker.",
    ["activity"],
    multiprocess_mode="livemax",
)
MQ_PENDING_OLDEST: Final = Gauge(
    "reservation_mq_pending_oldest_age_seconds",
    "How long the oldest of them is overdue for its next send.",
    ["activity"],
    multiprocess_mode="livemax",
)
OPEN: Final = Gauge(
    "reservation_open",
    "Reservations without an outcome.",
    ["activity"],
    multiprocess_mode="livemax",
)
SWEEP: Final = Counter(
    "reservation_sweep_total", "What the sweep did past valid_until.", ["result"]
)  # confirmed, released, deferred, held, dropped, rejected
SCAN_FAILURE: Final = Counter("scanner_failure_total", "Rounds that failed.", ["job"])
PAYMENT_ANSWER: Final = Counter(
    "payment_answer_total", "Answers of the payment provider about payments.", ["outcome"]
)  # the names of Outcome
REFUND_ANSWER: Final = Counter(
    "refund_answer_total", "Answers of the payment provider about refunds.", ["outcome"]
)
WEBHOOK: Final = Counter(
    "payment_webhook_total", "Webhooks of the payment provider.", ["result"]
)  # applied, ignored, parked, ticketed, duplicate, refused
GATE_LOSS: Final = Counter(
    "gate_loss_total", "Losses of Redis data that were noted; the gate is closed since.", ["kind"]
)  # gate_lost, redis_older_copy, redis_mark_gone, postgres_older_copy
GATE_REBUILDING: Final = Gauge(
    "gate_rebuild_unfinished",
    "1 while a rebuild of the sale's gate is unfinished, or waits for somebody to run it.",
    ["activity"],
    multiprocess_mode="livemax",
)
HELD_GAVE_UP: Final = Counter(
    "held_reservation_gave_up_total", "Held reservations rejected a day after their sale's end."
)
RECONCILE: Final = Counter(
    "reconcile_difference_total", "Differences between the stores.", ["kind", "action"]
)  # the names of Action, in lower case
RECONCILE_LOOK_FAILED: Final = Counter(
    "reconcile_look_failed_total", "Looks of the reconciler that could not be finished.", ["finder"]
)

# --- Numbers of the books, read every 5 s by the scanner's job `gauges` ---------------------------
OVERDUE: Final = Gauge(
    "orders_overdue_unclosed",
    "Unpaid orders more than 30 s past their end that nobody has cancelled.",
    multiprocess_mode="livemax",
)
RELEASE_OLDEST: Final = Gauge(
    "reservation_release_due_oldest_age_seconds",
    "Age of the oldest release that the gate was not given yet.",
    multiprocess_mode="livemax",
)
PAYMENT_UNKNOWN: Final = Gauge(
    "payment_submit_unknown",
    "Payment attempts whose result the provider has not told.",
    multiprocess_mode="livemax",
)
REFUND_UNSETTLED: Final = Gauge(
    "refund_unsettled",
    "Refunds that have not succeeded or failed yet.",
    multiprocess_mode="livemax",
)
WEBHOOK_PARKED: Final = Gauge(
    "payment_webhook_parked", "Webhooks that wait for their payment.", multiprocess_mode="livemax"
)
PG_ACTIVE: Final = Gauge(
    "pg_active_connections",
    "Client connections of this database that run a statement.",
    multiprocess_mode="livemax",
)
PG_LOCK_WAITERS: Final = Gauge(
    "pg_lock_waiters", "Client connections that wait for a lock.", multiprocess_mode="livemax"
)


def count_orders(reserved_at: Iterable[str]) -> None:
    """Count orders that were committed just now, and how long each took since its reservation.

    Args:
        reserved_at: the `reservation_created_at` of each.
    """
    now_s = time.time()
    for instant in reserved_at:
        ORDERS_CREATED.inc()
        AFTER_RESERVATION.observe(max(0.0, now_s - parse_instant(instant).timestamp()))
