"""Every metric of the system: one typed list.

docs/metrics.md is generated from it; a test compares list, code and page, and takes the names that
alert rules and dashboards may use from here. What a metric means stands at its definition in code,
as its help text. Names are the sources' where these give one (`aliases` are their other names for
the same thing); a counter's name ends in `_total`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """Type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Process(StrEnum):
    """Who exposes it."""

    WEB = "web"
    CONSUMER = "consumer"
    SENDER = "sender"
    SCANNER = "scanner"
    CELERY = "celery"
    GOVERNOR = "governor"
    CONSOLE = "console"  # DLQ drain and replay


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One metric.

    Args:
        name: as scraped.
        kind: its type.
        by: processes that set it.
        labels: label → what its values are.
        aliases: other names of the same thing in the sources.
    """

    name: str
    kind: Kind
    by: tuple[Process, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Chapter:
    """Metrics that belong together."""

    title: str
    metrics: tuple[Metric, ...]


_WEB: Final = (Process.WEB,)
_CONSUMER: Final = (Process.CONSUMER,)
_SENDER: Final = (Process.SENDER,)
_SCANNER: Final = (Process.SCANNER,)
_CELERY: Final = (Process.CELERY,)
_GOVERNOR: Final = (Process.GOVERNOR,)
_PRODUCERS: Final = (Process.WEB, Process.SENDER, Process.SCANNER)

_TOPIC: Final = {"topic": "short name of the registry"}
_GROUP: Final = {"group": "consumer group of the registry"}
_ACTIVITY: Final = {"activity": "number of the sale"}


def _counter(
    name: str, by: tuple[Process, ...], labels: Mapping[str, str] | None = None, *aliases: str
) -> Metric:
    return Metric(name=name, kind=Kind.COUNTER, by=by, labels=labels or {}, aliases=aliases)


def _gauge(
    name: str, by: tuple[Process, ...], labels: Mapping[str, str] | None = None, *aliases: str
) -> Metric:
    return Metric(name=name, kind=Kind.GAUGE, by=by, labels=labels or {}, aliases=aliases)


def _histogram(
    name: str, by: tuple[Process, ...], labels: Mapping[str, str] | None = None, *aliases: str
) -> Metric:
    return Metric(name=name, kind=Kind.HISTOGRAM, by=by, labels=labels or {}, aliases=aliases)


CHAPTERS: Final[tuple[Chapter, ...]] = (
    Chapter(
        title="Entry",
        metrics=(
            _counter(
                "seckill_admission_answers_total",
                _WEB,
                {"code": "QUEUED, PENDING, or a problem's code (docs/problems.md)"},
                "seckill_requests_total",
                "seckill_admitted_total",
            ),
            _counter(
                "seckill_admission_give_back_total",
                _WEB,
                {"code": "OK, REFUSED, RELEASED, MISSING"},
            ),
            _counter("seckill_admission_gate_lost_answers_total", _WEB),
            _counter("seckill_admission_mark_lost_total", _WEB),
            _histogram("seckill_admission_batch_size", _WEB),
            _gauge("seckill_admission_queued", _WEB),
            _gauge("seckill_admission_breaker_open", _WEB),
        ),
    ),
    Chapter(
        title="Sending",
        metrics=(
            _counter(
                "mq_publish_total",
                _PRODUCERS,
                {**_TOPIC, "outcome": "CONFIRMED, UNKNOWN, DEFINITE_FAILURE"},
                "scanner_send_attempt_total",
            ),
            _histogram("mq_publish_latency_seconds", _PRODUCERS, _TOPIC),
            _counter("mq_publish_unknown_total", _PRODUCERS, _TOPIC, "mq_send_unknown_total"),
            _gauge("reservation_mq_pending", _SCANNER, _ACTIVITY),
            _gauge(
                "reservation_mq_pending_oldest_age_seconds",
                _SCANNER,
                _ACTIVITY,
                "reservation_mq_pending_oldest_age",
            ),
            _gauge("reservation_open", _SCANNER, _ACTIVITY),
            _counter(
                "reservation_resend_total",
                _SCANNER,
                {"outcome": "CONFIRMED, UNKNOWN, DEFINITE_FAILURE"},
            ),
            _gauge("outbox_unsent", _SENDER, {"lane": "0, 1, 2"}, "outbox_pending"),
            _gauge("outbox_oldest_age_seconds", _SENDER, {"lane": "0, 1, 2"}),
            _counter("outbox_lease_lost_total", _SENDER),
            _gauge("outbox_topic_breaker_open", _SENDER, _TOPIC),
        ),
    ),
    Chapter(
        title="Consuming",
        metrics=(
            _counter(
                "mq_consume_total", _CONSUMER, {**_TOPIC, "result": "name of the Disposition"}
            ),
            _histogram("mq_consume_process_seconds", _CONSUMER, _TOPIC, "process_latency"),
            _histogram("mq_consume_batch_size", _CONSUMER, _TOPIC),
            _gauge("mq_consumer_inflight", _CONSUMER, _GROUP, "inflight"),
            _gauge("mq_consumer_ready", _SENDER, _GROUP, "ready"),
            _gauge("mq_consumer_lag_messages", _SENDER, _GROUP, "lag_messages"),
            _gauge("mq_consumer_oldest_seconds", _SENDER, _GROUP),
            _gauge("mq_consumer_lag_seconds", _CONSUMER, _GROUP, "lag_seconds", "mq_lag_seconds"),
            _gauge("mq_broker_exporter_up", _SENDER),
            _counter("mq_ack_failure_total", _CONSUMER, _GROUP),
            _counter(
                "mq_duplicate_message_total",
                _CONSUMER,
                _GROUP,
                "consumer_inbox_conflict_total",
                "inbox_insert_conflict_total",
            ),
            _counter("mq_business_reject_total", _CONSUMER, {"reason": "of the reject"}),
            _counter(
                "mq_consumer_left_total",
                _CONSUMER,
                {**_GROUP, "why": "late, outage, paused, stopping"},
            ),
            _counter(
                "mq_quarantine_total",
                (Process.CONSUMER, Process.SENDER),
                {**_GROUP, "reason": "stable code"},
            ),
            _counter("mq_consumer_outage_total", _CONSUMER, _GROUP),
            _gauge("mq_consumer_paused", _CONSUMER, _GROUP),
            _counter("mq_receive_failure_total", _CONSUMER, _GROUP),
            _counter("mq_replay_skipped_total", _CONSUMER, _GROUP),
        ),
    ),
    Chapter(
        title="Orders",
        metrics=(
            _histogram(
                "order_tx_latency_seconds",
                _CONSUMER,
                None,
                "order_tx_latency",
                "inbox_transaction_latency",
            ),
            _histogram("order_after_reservation_seconds", _CONSUMER, None, "event_e2e_seconds"),
            _counter("order_created_total", _CONSUMER, None, "order_create_success_total"),
            _counter("cancel_message_total", (Process.CONSUMER, Process.SCANNER)),
            _counter("cancel_transition_success_total", (Process.CONSUMER, Process.SCANNER)),
            _counter("cancel_noop_paid_total", (Process.CONSUMER, Process.SCANNER)),
            _counter("cancel_noop_not_expired_total", (Process.CONSUMER, Process.SCANNER)),
            _counter("cancel_noop_canceled_total", (Process.CONSUMER, Process.SCANNER)),
            _counter("cancel_noop_missing_total", (Process.CONSUMER, Process.SCANNER)),
            _gauge("orders_overdue_unclosed", _SCANNER),
            _counter(
                "reservation_release_total",
                (Process.CONSUMER, Process.SCANNER),
                {"result": "done, deferred"},
            ),
            _gauge("reservation_release_due_oldest_age_seconds", _SCANNER),
            _counter(
                "reservation_confirm_total",
                (Process.CONSUMER, Process.SCANNER),
                {"result": "the gate's answer; unavailable"},
            ),
            _counter(
                "reservation_sweep_total",
                _SCANNER,
                {"result": "confirmed, released, deferred, held, dropped, rejected"},
            ),
            _counter("held_reservation_gave_up_total", _SCANNER),
            _counter("scanner_failure_total", _SCANNER, {"job": "of run_scanner"}),
        ),
    ),
    Chapter(
        title="Money",
        metrics=(
            _counter(
                "payment_answer_total",
                (Process.WEB, Process.SCANNER),
                {"outcome": "of the provider, or SET_ASIDE"},
            ),
            _counter("refund_answer_total", _SCANNER, {"outcome": "of the provider, or SET_ASIDE"}),
            _counter(
                "payment_webhook_total",
                (Process.WEB, Process.SCANNER),
                {"result": "applied, ignored, parked, ticketed, duplicate, refused"},
            ),
            _gauge("payment_submit_unknown", _SCANNER, None, "submit_unknown"),
            _gauge("refund_unsettled", _SCANNER),
            _gauge("payment_webhook_parked", _SCANNER),
        ),
    ),
    Chapter(
        title="Gate and books",
        metrics=(
            _counter("inventory_condition_update_miss_total", _CONSUMER),
            _gauge("inventory_gate_lost", _SCANNER, {"activity_id": "number of the sale"}),
            _counter(
                "inventory_gate_operations_total",
                _SCANNER,
                {"kind": "of the operation", "result": "how it ended"},
            ),
            _counter(
                "gate_loss_total",
                _SCANNER,
                {"kind": "gate_lost, redis_older_copy, redis_mark_gone, postgres_older_copy"},
            ),
            _gauge("gate_rebuild_unfinished", _SCANNER, _ACTIVITY),
            _counter(
                "reconcile_difference_total",
                _CELERY,
                {"kind": "class of the difference", "action": "what was done about it"},
                "inventory_drift_units",
            ),
            _counter(
                "reconcile_look_failed_total",
                _CELERY,
                {"finder": "database, gate, messages, money"},
            ),
        ),
    ),
    Chapter(
        title="Governor",
        metrics=(
            _gauge("seckill_governor_leads", _GOVERNOR),
            _gauge("seckill_governor_level", _GOVERNOR),
            _gauge("seckill_governor_entry_rate", _GOVERNOR),
            _gauge("seckill_governor_capacity", _GOVERNOR),
            _gauge("seckill_governor_workers", _GOVERNOR, _GROUP),
            _counter(
                "seckill_governor_changes_total",
                _GOVERNOR,
                {"before": "level left", "after": "level entered"},
            ),
            _gauge("reservation_expiring", _GOVERNOR, _ACTIVITY, "reservation_near_expiry"),
        ),
    ),
    Chapter(
        title="Dead letters",
        metrics=(
            _gauge("mq_dlq_messages", _SENDER, _GROUP, "dlq_message_count"),
            _gauge("mq_dlq_oldest_age_seconds", _SENDER, _GROUP, "dlq_oldest_age_seconds"),
            _counter(
                "mq_dlq_replay_total",
                (Process.CONSOLE,),
                {"result": "how the replay ended"},
                "dlq_replay_success_total",
            ),
            _gauge("dlq_audit_findings", _CELERY),
            _gauge(
                "mq_dlq_tickets_open",
                _CONSUMER,
                {"severity": "SEV1, SEV2, SEV3"},
                "dlq_ticket_open_total",
            ),
            _counter("mq_dlq_captured_total", _CONSUMER, {"source": "DLQ or CONSUMER"}),
            _counter("mq_dlq_settled_total", _CONSUMER),
            _counter("mq_dlq_drain_failure_total", _CONSUMER, {"part": "receive or own"}),
        ),
    ),
    Chapter(
        title="PostgreSQL",
        metrics=(
            _histogram(
                "pg_pool_wait_seconds",
                (Process.WEB, Process.CONSUMER, Process.SENDER),
                {"pool": "web, consumer, sender"},
            ),
            _gauge("pg_pool_acquired", (Process.WEB, Process.CONSUMER), {"pool": "web, consumer"}),
            _counter("pg_deadlock_total", _CONSUMER),
            _counter("pg_serialization_retry_total", _CONSUMER, {"sqlstate": "of the failure"}),
            _gauge("pg_active_connections", _SCANNER),
            _gauge("pg_lock_waiters", _SCANNER),
            _gauge("messaging_partition_days_left", (Process.SENDER, Process.CELERY)),
            _gauge("messaging_retention_refused_days", _CELERY),
            _gauge(
                "messaging_default_partition_rows",
                (Process.SENDER, Process.CELERY),
                {"table": "partitioned table"},
            ),
            _gauge(
                "messaging_table_bytes", _SENDER, {"table": "partitioned table"}, "inbox_table_size"
            ),
        ),
    ),
)

METRICS: Final[dict[str, Metric]] = {
    metric.name: metric for chapter in CHAPTERS for metric in chapter.metrics
}
