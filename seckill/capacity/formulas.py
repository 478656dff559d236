"""The formulas, each with its units; worked examples are in their tests (no I/O).

Never size by a daily mean: a peak is twenty of it.
"""

import math
from typing import Final

DAY_S: Final = 86_400
# Of a worker's time that may be planned for; the rest is for retries, pauses and unevenness.
USABLE: Final = 0.7


def growth_per_s(*, produce_per_s: float, consume_per_s: float) -> float:
    """Return by how many messages a second a backlog grows (negative: shrinks)."""
    return produce_per_s - consume_per_s


def drain_s(*, backlog: float, consume_per_s: float, produce_per_s: float = 0.0) -> float:
    """Return seconds until a backlog is gone; infinite when consumption is no faster."""
    if backlog <= 0:
        return 0.0
    net = consume_per_s - produce_per_s
    return backlog / net if net > 0 else math.inf


def lag_s(*, backlog: float, consume_per_s: float) -> float:
    """Return how old the oldest waiting message gets: the same count is short or long a wait."""
    return drain_s(backlog=backlog, consume_per_s=consume_per_s)


def burst_backlog(*, produce_per_s: float, consume_per_s: float, burst_s: float) -> float:
    """Return what waits at the end of a burst."""
    return max(0.0, growth_per_s(produce_per_s=produce_per_s, consume_per_s=consume_per_s)) * (
        burst_s
    )


def slo_budget_s(*, drain_s: float, transaction_s: float, network_s: float) -> float:
    """Return from reservation to order at worst: drain + transaction p99 + network."""
    return drain_s + transaction_s + network_s


def mean_per_s(per_day: float) -> float:
    """Return the mean rate of a day's count."""
    return per_day / DAY_S


def message_rate(*, business_per_s: float, messages_each: float) -> float:
    """Return messages a second that are sent."""
    return business_per_s * messages_each


def delivery_rate(*, messages_per_s: float, groups: float) -> float:
    """Return messages a second that are read: each group reads each message."""
    return messages_per_s * groups


def with_reserve(value: float, *, reserve: float) -> float:
    """Return a value with so large a share on top."""
    return value * (1 + reserve)


def storage_bytes(
    *,
    per_s: float = 0.0,
    seconds: float = 0.0,
    count: float = 0.0,
    message_bytes: float,
    replicas: float = 1,
    overhead: float = 1.0,
    reserve: float = 0.0,
) -> float:
    """Return what the broker stores: count (or rate x time) x size x replicas x overhead.

    Args:
        per_s: with `seconds`, instead of `count`.
        seconds: retention.
        count: messages, instead of a rate.
        message_bytes: of one.
        replicas: copies.
        overhead: index, queues, trace: a factor.
        reserve: share on top.
    """
    messages = count or per_s * seconds
    return with_reserve(messages * message_bytes * replicas * overhead, reserve=reserve)


def queues(*, messages_per_s: float, per_queue_per_s: float) -> tuple[int, int]:
    """Return the least number of queues, and the power of two to create."""
    least = max(1, math.ceil(messages_per_s / per_queue_per_s - 1e-9))
    return least, 1 << (least - 1).bit_length()


def instance_rate(*, concurrency: float, seconds_each: float, usable: float = USABLE) -> float:
    """Return what one worker process does a second."""
    return concurrency / seconds_each * usable


def instances(*, demand_per_s: float, instance_per_s: float) -> int:
    """Return how many processes a demand needs, without a spare."""
    return math.ceil(demand_per_s / instance_per_s - 1e-9)


def transactions_at_a_time(
    *, orders_per_s: float, orders_each: float, transaction_s: float
) -> float:
    """Return how many order transactions run together (Little's law)."""
    return orders_per_s / orders_each * transaction_s
