"""All metrics of messaging: names as in docs/metrics.md. Cheap calls only, once per batch."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

_LATENCY: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.1, 0.25, 0.5, 1, 3)

# --- Producers: admission, scanner, sender ------------------------------------------------------
PUBLISH: Final = Counter(
    "mq_publish_total", "Messages by outcome of ONE attempt.", ["topic", "outcome"]
)
PUBLISH_LATENCY: Final = Histogram(
    "mq_publish_latency_seconds", "One send call, batch or single.", ["topic"], buckets=_LATENCY
)
PUBLISH_UNKNOWN: Final = Counter(
    "mq_publish_unknown_total", "Messages whose send ended UNKNOWN: stored or not.", ["topic"]
)

# --- Consumers ----------------------------------------------------------------------------------
CONSUME: Final = Counter(
    "mq_consume_total", "Deliveries by what became of them (a Disposition).", ["topic", "result"]
)
CONSUME_SECONDS: Final = Histogram(
    "mq_consume_process_seconds",
    "Handling of one batch, without the ack.",
    ["topic"],
    buckets=(0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5),
)
CONSUME_BATCH: Final = Histogram(
    "mq_consume_batch_size",
    "Messages handled together.",
    ["topic"],
    buckets=(1, 4, 16, 32, 64, 128),
)
INFLIGHT: Final = Gauge(
    "mq_consumer_inflight", "Messages received and not yet settled.", ["group"],
    multiprocess_mode="livesum",
)  # fmt: skip
READY: Final = Gauge(
    "mq_consumer_ready", "Messages at the broker that nobody holds (set by the lag reader).",
    ["group"], multiprocess_mode="livemax",
)  # fmt: skip
LAG_MESSAGES: Final = Gauge(
    "mq_consumer_lag_messages", "Messages at the broker not yet acked (set by the lag reader).",
    ["group"], multiprocess_mode="livemax",
)  # fmt: skip
OLDEST_SECONDS: Final = Gauge(
    "mq_consumer_oldest_seconds",
    "Age of the oldest message at the broker not yet acked (set by the lag reader).",
    ["group"],
    multiprocess_mode="livemax",
)
LAG_SECONDS: Final = Gauge(
    "mq_consumer_lag_seconds", "Age of the messages being handled, by the broker's store time.",
    ["group"], multiprocess_mode="livemax",
)  # fmt: skip
ACK_FAILURE: Final = Counter(
    "mq_ack_failure_total", "Acks not known to have worked; the business result stays.", ["group"]
)
DUPLICATE: Final = Counter(
    "mq_duplicate_message_total", "Deliveries of messages dealt with before.", ["group"]
)
BUSINESS_REJECT: Final = Counter("mq_business_reject_total", "Committed rejects.", ["reason"])
LEFT: Final = Counter(
    "mq_consumer_left_total",
    "Messages received and left un-acked without being begun.",
    ["group", "why"],
)  # late, outage, paused, stopping
QUARANTINED: Final = Counter(
    "mq_quarantine_total", "Messages put into quarantine.", ["group", "reason"]
)
OUTAGE: Final = Counter(
    "mq_consumer_outage_total", "Times a loop stopped receiving until a probe passed.", ["group"]
)
PAUSED: Final = Gauge(
    "mq_consumer_paused", "1 while the group is paused.", ["group"], multiprocess_mode="livemax"
)
RECEIVE_FAILURE: Final = Counter(
    "mq_receive_failure_total", "Receives that the broker did not answer.", ["group"]
)

BROKER_EXPORTER_UP: Final = Gauge(
    "mq_broker_exporter_up", "1 while the broker's own exporter answers.",
    multiprocess_mode="livemax",
)  # fmt: skip

# --- PostgreSQL, as seen by the loops -----------------------------------------------------------
POOL_WAIT: Final = Histogram(
    "pg_pool_wait_seconds",
    "How long a unit of work waited for a connection.",
    ["pool"],
    buckets=(0.0005, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 3),
)
POOL_ACQUIRED: Final = Gauge(
    "pg_pool_acquired", "Connections that a unit of work holds.", ["pool"],
    multiprocess_mode="livesum",
)  # fmt: skip
PG_DEADLOCK: Final = Counter("pg_deadlock_total", "Units of work that ended with 40P01.")
PG_SERIALIZATION_RETRY: Final = Counter(
    "pg_serialization_retry_total", "Units tried again in place.", ["sqlstate"]
)

# --- Outbox and quarantine at rest --------------------------------------------------------------
OUTBOX_DUE: Final = Gauge(
    "outbox_unsent", "Rows not sent yet, counted up to 100 000.", ["lane"],
    multiprocess_mode="livemax",
)  # fmt: skip
OUTBOX_OLDEST: Final = Gauge(
    "outbox_oldest_age_seconds", "Age of the oldest row not sent yet.", ["lane"],
    multiprocess_mode="livemax",
)  # fmt: skip
OUTBOX_LEASE_LOST: Final = Counter(
    "outbox_lease_lost_total", "Rows whose lease had gone to another sender before the mark."
)
OUTBOX_BREAKER_OPEN: Final = Gauge(
    "outbox_topic_breaker_open", "1 while nothing is sent to the topic.", ["topic"],
    multiprocess_mode="livemax",
)  # fmt: skip
QUARANTINE_OPEN: Final = Gauge(
    "mq_dlq_messages", "Open quarantine rows, dead letters among them.", ["group"],
    multiprocess_mode="livemax",
)  # fmt: skip
QUARANTINE_OLDEST: Final = Gauge(
    "mq_dlq_oldest_age_seconds", "Age of the oldest open quarantine row.", ["group"],
    multiprocess_mode="livemax",
)  # fmt: skip
REPLAY_SKIPPED: Final = Counter(
    "mq_replay_skipped_total", "Replays meant for another group: acked without effect.", ["group"]
)
DLQ_REPLAY: Final = Counter("mq_dlq_replay_total", "Replays of quarantined messages.", ["result"])
PARTITION_DAYS_LEFT: Final = Gauge(
    "messaging_partition_days_left", "Days after today that all tables are ready for.",
    multiprocess_mode="livemin",
)  # fmt: skip
RETENTION_REFUSED: Final = Gauge(
    "messaging_retention_refused_days", "Days past their horizon that could not be dropped.",
    multiprocess_mode="livemax",
)  # fmt: skip
TABLE_BYTES: Final = Gauge(
    "messaging_table_bytes", "A partitioned table on disk, all days and indexes together.",
    ["table"], multiprocess_mode="livemax",
)  # fmt: skip
DEFAULT_ROWS: Final = Gauge(
    "messaging_default_partition_rows", "Rows in a DEFAULT partition; 0 is the good value.",
    ["table"], multiprocess_mode="livemax",
)  # fmt: skip
