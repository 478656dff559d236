"""What the broker's own exporter says of our groups: backlog, ready, in flight.

The exporter is optional (ROCKETMQ_METRICS_URL). Without it, while it does not answer, and for a
group that nobody consumed from in the last ten minutes, the gauges are absent: a number that is not
known must not look like zero. Lag in seconds is our own and does not need it.

One loop of the sender asks it for everybody: each answer costs the broker. What it said stands in
that loop's heartbeat (`selectors.broker_backlog`).
"""

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog
import urllib3
from django.conf import settings
from prometheus_client.parser import text_string_to_metric_families

from messaging import metrics
from messaging.pulse import LoopState, Pulse
from messaging.topology import GROUPS, physical_group

EVERY_S: Final = 5.0  # each answer costs the broker some 0.2 s of CPU
_TIMEOUT: Final = urllib3.Timeout(connect=1.0, read=2.0)
_LAG: Final = "rocketmq_consumer_lag_messages"
_READY: Final = "rocketmq_consumer_ready_messages"
_INFLIGHT: Final = "rocketmq_consumer_inflight_messages"
_LAG_MS: Final = "rocketmq_consumer_lag_latency_milliseconds"
_MOST: Final = float(2**53)
_SUMS: Final = frozenset({_LAG, _READY, _INFLIGHT})

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerBacklog:
    """A group as the broker sees it, summed over its topics, queues and brokers.

    `lag` = not acked yet, of which `ready` are held by nobody; `oldest_s` is the age of the oldest.
    """

    lag: int
    ready: int
    in_flight: int
    oldest_s: float


class ExporterAway(Exception):
    """There is no exporter, or it does not answer."""


def read_backlogs(url: str = "") -> dict[str, BrokerBacklog]:
    """Ask the exporter for every group of the registry that it knows.

    Args:
        url: its address; ROCKETMQ_METRICS_URL when empty.

    Raises:
        ExporterAway: not configured, not reachable within 3 s, or no such page.

    Cost: one HTTP request and some ms to parse; not for a hot path.
    """
    url = url or settings.ROCKETMQ_METRICS_URL
    if not url:
        raise ExporterAway("ROCKETMQ_METRICS_URL is not set")
    try:
        answer = _http.request("GET", url, retries=False, timeout=_TIMEOUT)
    except urllib3.exceptions.HTTPError as error:
        raise ExporterAway(f"{url}: {type(error).__name__}") from error
    if answer.status != 200:
        raise ExporterAway(f"{url}: HTTP {answer.status}")
    return parse_backlogs(answer.data.decode("utf-8", "replace"))


def parse_backlogs(text: str) -> dict[str, BrokerBacklog]:
    """Read the exporter's page.

    Raises:
        ExporterAway: it is no page of metrics, or one of our numbers is none.
    """
    ours = {physical_group(group.name): group.name for group in GROUPS}
    sums: Mapping[str, dict[str, float]] = defaultdict(dict)
    # Only our lines are parsed: the page also has thousands of histogram buckets.
    page = "".join(
        f"{line}\n"
        for line in text.splitlines()
        if line.startswith(("rocketmq_consumer_", "# TYPE rocketmq_consumer_"))
    )
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                group = ours.get(sample.labels.get("consumer_group", ""))
                if group is None:
                    continue
                if not abs(sample.value) < _MOST:  # nor NaN
                    raise ExporterAway(f"{sample.name} of {group} is {sample.value}")
                found = sums[group]
                if sample.name in _SUMS:
                    found[sample.name] = found.get(sample.name, 0.0) + sample.value
                elif sample.name == _LAG_MS:
                    found[_LAG_MS] = max(found.get(_LAG_MS, 0.0), sample.value)
    except (ValueError, LookupError) as error:  # the parser raises either
        raise ExporterAway(f"not a page of metrics: {error}") from error
    return {
        group: BrokerBacklog(
            lag=int(found.get(_LAG, 0)),
            ready=int(found.get(_READY, 0)),
            in_flight=int(found.get(_INFLIGHT, 0)),
            oldest_s=found.get(_LAG_MS, 0.0) / 1000,
        )
        for group, found in sums.items()
    }


def publish_backlogs() -> dict[str, BrokerBacklog] | None:
    """Set the gauges from the exporter, or clear them; returns its answer, None without one."""
    try:
        backlogs: dict[str, BrokerBacklog] | None = read_backlogs()
    except ExporterAway:
        backlogs = None
    metrics.BROKER_EXPORTER_UP.set(backlogs is not None)
    metrics.LAG_MESSAGES.clear()
    metrics.READY.clear()
    metrics.OLDEST_SECONDS.clear()
    if backlogs is None:
        return None
    for group, backlog in backlogs.items():
        metrics.LAG_MESSAGES.labels(group).set(backlog.lag)
        metrics.READY.labels(group).set(backlog.ready)
        metrics.OLDEST_SECONDS.labels(group).set(backlog.oldest_s)
    return backlogs


def keep_backlogs(stop: threading.Event, pulse: Pulse) -> None:
    """Publish every 5 s until stopped; without a configured exporter there is nothing to do."""
    answered = True
    while not stop.is_set():
        pulse.touch()
        backlogs = publish_backlogs()
        before, answered = answered, backlogs is not None
        if answered is not before and settings.ROCKETMQ_METRICS_URL:
            log.warning("broker_exporter", answers=answered, url=settings.ROCKETMQ_METRICS_URL)
        pulse.report(
            LoopState.RUNNING,
            exporter=answered,
            backlogs={
                group: {"ready": one.ready, "in_flight": one.in_flight}
                for group, one in (backlogs or {}).items()
            },
        )
        stop.wait(EVERY_S)


_http: Final = urllib3.PoolManager(maxsize=1)
