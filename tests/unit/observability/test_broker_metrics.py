"""The broker's exporter: our groups are summed; what is not known is absent, never zero."""

from typing import Any

import pytest
from prometheus_client import REGISTRY

from messaging import broker_metrics
from messaging.broker_metrics import BrokerBacklog, ExporterAway, parse_backlogs, read_backlogs
from messaging.topology import CG_AUDIT, CG_ORDER_CREATE, physical_group
from tests.fixtures.exporter import Serve

GROUP = "mq_consumer_lag_messages"


def line(name: str, group: str, value: float, *, retry: str = "false") -> str:
    labels = f'cluster="c",consumer_group="{group}",is_retry="{retry}",topic="t"'
    return f"rocketmq_consumer_{name}{{{labels}}} {value}\n"


def page() -> str:
    ours = physical_group(CG_ORDER_CREATE)
    return (
        "# TYPE rocketmq_broker_tps gauge\nrocketmq_broker_tps 1\n"
        "# TYPE rocketmq_consumer_lag_messages gauge\n"
        + line("lag_messages", ours, 7)
        + line("lag_messages", ours, 3, retry="true")
        + line("lag_messages", "SOMEBODY_ELSES_GROUP", 99)
        + "# TYPE rocketmq_consumer_ready_messages gauge\n"
        + line("ready_messages", ours, 4)
        + "# TYPE rocketmq_consumer_inflight_messages gauge\n"
        + line("inflight_messages", ours, 6)
        + "# TYPE rocketmq_consumer_lag_latency_milliseconds gauge\n"
        + line("lag_latency_milliseconds", ours, 1500)
        + line("lag_latency_milliseconds", ours, 200, retry="true")
    )


def lag(group: str) -> float | None:
    return REGISTRY.get_sample_value(GROUP, {"group": group})


def test_a_groups_topics_and_retries_are_summed() -> None:
    assert parse_backlogs(page()) == {
        CG_ORDER_CREATE: BrokerBacklog(lag=10, ready=4, in_flight=6, oldest_s=1.5)
    }


def test_a_group_that_the_exporter_forgot_is_absent_and_not_zero(
    serve: Serve, settings: Any
) -> None:
    settings.ROCKETMQ_METRICS_URL = serve(200, page())
    assert broker_metrics.publish_backlogs() == parse_backlogs(page())
    assert lag(CG_ORDER_CREATE) == 10
    assert lag(CG_AUDIT) is None
    age = REGISTRY.get_sample_value("mq_consumer_oldest_seconds", {"group": CG_ORDER_CREATE})
    assert age == 1.5
    assert REGISTRY.get_sample_value("mq_broker_exporter_up") == 1

    settings.ROCKETMQ_METRICS_URL = serve(200, "# nothing\n")
    assert broker_metrics.publish_backlogs() == {}
    assert lag(CG_ORDER_CREATE) is None


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:1/metrics"])
def test_without_an_exporter_nothing_is_claimed(serve: Serve, settings: Any, url: str) -> None:
    settings.ROCKETMQ_METRICS_URL = serve(200, page())
    broker_metrics.publish_backlogs()

    settings.ROCKETMQ_METRICS_URL = url
    assert broker_metrics.publish_backlogs() is None

    assert lag(CG_ORDER_CREATE) is None
    assert REGISTRY.get_sample_value("mq_broker_exporter_up") == 0


@pytest.mark.parametrize(
    ("status", "text", "what"),
    [
        (500, "", "HTTP 500"),
        (200, "rocketmq_consumer_lag_messages{ broken", "not a page"),
        # the parser's IndexError
        (200, 'rocketmq_consumer_l}ag_messages{consumer_group="x", =topic="y"} 3', "not a page"),
    ],
)
def test_an_odd_answer_is_an_exporter_that_is_away(
    serve: Serve, status: int, text: str, what: str
) -> None:
    url = serve(status, text)
    with pytest.raises(ExporterAway, match=what):
        read_backlogs(url)


@pytest.mark.parametrize("number", ["NaN", "+Inf", "-Inf", "1e300"])
def test_a_number_that_is_none_is_an_exporter_that_is_away(number: str) -> None:
    with pytest.raises(ExporterAway, match="rocketmq_consumer_lag_messages"):
        parse_backlogs(page().replace(" 7\n", f" {number}\n"))
