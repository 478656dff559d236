"""Metrics that count nothing: only to measure what metrics cost (SECKILL_METRICS=off)."""

from typing import Any

import prometheus_client.values


class _Nothing:
    """Takes every number and keeps none."""

    _multiprocess = False

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def inc(self, amount: float) -> None: ...

    def set(self, value: float, timestamp: float | None = None) -> None: ...

    def set_exemplar(self, exemplar: Any) -> None: ...

    def get(self) -> float:
        return 0.0

    def get_exemplar(self) -> None: ...


def count_nothing() -> None:
    """Make every metric that is defined from now on such a one."""
    prometheus_client.values.ValueClass = _Nothing
