"""The list of metrics, the code and the sources' names agree (the page is compared with others)."""

import pytest

from seckill.observability.catalogue import CHAPTERS, METRICS, Kind
from seckill.observability.registry import defined

# Names that the sources ask for (R260): producer, consumer, dead letters, PostgreSQL.
WANTED = {
    "mq_publish_total": {"topic", "outcome"},
    "mq_publish_latency_seconds": {"topic"},
    "mq_publish_unknown_total": {"topic"},
    "reservation_mq_pending": set(),
    "reservation_mq_pending_oldest_age_seconds": set(),
    "reservation_resend_total": {"outcome"},
    "mq_consume_total": {"topic", "result"},
    "mq_consume_process_seconds": {"topic"},
    "mq_consumer_inflight": set(),
    "mq_consumer_ready": set(),
    "mq_consumer_lag_messages": set(),
    "mq_consumer_lag_seconds": set(),
    "mq_ack_failure_total": set(),
    "mq_duplicate_message_total": set(),
    "mq_business_reject_total": {"reason"},
    "mq_dlq_messages": set(),
    "mq_dlq_oldest_age_seconds": set(),
    "mq_dlq_replay_total": {"result"},
    "order_tx_latency_seconds": set(),
    "pg_pool_wait_seconds": set(),
    "pg_pool_acquired": set(),
    "pg_deadlock_total": set(),
    "pg_serialization_retry_total": set(),
    "inventory_condition_update_miss_total": set(),
    "cancel_message_total": set(),
    "cancel_transition_success_total": set(),
    "cancel_noop_paid_total": set(),
    "cancel_noop_not_expired_total": set(),
    "pg_active_connections": set(),
}


def test_list_and_code_name_the_same_metrics() -> None:
    assert set(METRICS) == set(defined())


def test_list_and_code_agree_on_types_and_labels() -> None:
    code = defined()
    said = {name: (m.kind, set(m.labels)) for name, m in METRICS.items() if name in code}
    assert said == {name: (d.kind, set(d.labels)) for name, d in code.items() if name in METRICS}


def test_every_metric_says_what_it_means_and_who_sets_it() -> None:
    silent = [name for name, d in defined().items() if len(d.help.split()) < 2]
    assert silent == []
    assert [name for name, m in METRICS.items() if not m.by] == []


def test_no_metric_is_listed_twice() -> None:
    names = [metric.name for chapter in CHAPTERS for metric in chapter.metrics]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", sorted(WANTED))
def test_the_names_of_the_sources_exist(name: str) -> None:
    assert WANTED[name] <= METRICS[name].labels.keys()


def test_aliases_are_nobody_elses_names() -> None:
    aliases = [alias for metric in METRICS.values() for alias in metric.aliases]
    assert len(aliases) == len(set(aliases))
    assert not set(aliases) & set(METRICS)


def test_names_end_in_their_unit() -> None:
    wrong = [
        m.name
        for m in METRICS.values()
        if (m.kind is Kind.COUNTER) is not m.name.endswith("_total")
        or (m.kind is Kind.HISTOGRAM and not m.name.endswith(("_seconds", "_size")))
    ]
    assert wrong == []
