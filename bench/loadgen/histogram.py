"""Latencies in logarithmic buckets: constant memory, about 3 % wide, exact counts."""

from collections.abc import Mapping
from typing import Final

_SUB_BITS: Final = 5  # 32 buckets for each doubling
_EXACT: Final = 1 << (_SUB_BITS + 1)  # below 64 µs every microsecond has its own bucket
_CURVE: Final = (10, 25, 50, 75, 90, 95, 99, 99.9, 100)


def bucket_of(value_us: int) -> int:
    """Return the number of the bucket that counts `value_us` (0 for negative values)."""
    if value_us < _EXACT:
        return max(value_us, 0)
    shift = value_us.bit_length() - _SUB_BITS - 1
    return (shift << _SUB_BITS) + (value_us >> shift)


def upper_edge_us(bucket: int) -> int:
    """Return the largest value that falls into `bucket`."""
    if bucket < _EXACT:
        return bucket
    shift = (bucket >> _SUB_BITS) - 1
    return ((bucket - (shift << _SUB_BITS) + 1) << shift) - 1


class Histogram:
    """Counts of microseconds. `add` is the hot path."""

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (bucket_of(600_000_000) + 1)  # ten minutes
        self.max_us = 0

    def add(self, value_us: int) -> None:
        """Count one latency."""
        if value_us > self.max_us:
            self.max_us = value_us
        try:
            self.counts[bucket_of(value_us)] += 1
        except IndexError:
            self.counts[-1] += 1

    @property
    def total(self) -> int:
        """How many were counted."""
        return sum(self.counts)

    def percentile_ms(self, percent: float) -> float:
        """Return the latency that `percent` of the values do not exceed, in ms; 0 if empty."""
        total = self.total
        if not total:
            return 0.0
        wanted = max(1, -(-total * percent // 100))  # ceiling
        seen = 0
        for bucket, count in enumerate(self.counts):
            seen += count
            if seen >= wanted:
                return round(min(upper_edge_us(bucket), self.max_us) / 1000, 3)
        return round(self.max_us / 1000, 3)

    def sparse(self) -> dict[int, int]:
        """Return the buckets that counted something, and their counts."""
        return {bucket: count for bucket, count in enumerate(self.counts) if count}

    def merge(self, counts: Mapping[int, int]) -> None:
        """Add what another histogram's `sparse` has told; its maximum is known to a bucket."""
        for bucket, count in counts.items():
            self.counts[bucket] += count
        self.max_us = max([self.max_us, *(upper_edge_us(bucket) for bucket in counts)])

    def curve(self) -> dict[str, float]:
        """Return the latency in ms at some percentages, from 10 to 100."""
        return {f"{percent:g}": self.percentile_ms(percent) for percent in _CURVE}
