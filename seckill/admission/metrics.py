"""Numbers of the hot path. Its own counts are plain integers, handed over once a second: free.

With several web processes set PROMETHEUS_MULTIPROC_DIR (a directory that is emptied before each
start of the server): then any of them answers /metrics for all.
"""

from collections import defaultdict
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

ANSWERS: Final = Counter(
    "seckill_admission_answers_total", "Answers of the hot endpoint.", ["code"]
)
GIVE_BACK: Final = Counter(
    "seckill_admission_give_back_total", "Give-backs after a definite send failure.", ["code"]
)
GATE_LOST_ANSWERS: Final = Counter(
    "seckill_admission_gate_lost_answers_total", "Calls of the gate without an answer in time."
)
MARK_LOST: Final = Counter(
    "seckill_admission_mark_lost_total", "Confirmed messages that the gate was not told of."
)
BATCH_SIZE: Final = Histogram(
    "seckill_admission_batch_size",
    "Reservations sent in one batch.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128),
)
QUEUED: Final = Gauge(
    "seckill_admission_queued", "Requests that wait for a batch.", multiprocess_mode="livesum"
)
BREAKER_OPEN: Final = Gauge(
    "seckill_admission_breaker_open",
    "1 while a configuration failure of the broker keeps admission closed.",
    multiprocess_mode="livemax",
)

# (activity, SKU) as asked for, code → answers since the last flush. Whatever clients invent is
# forgotten a second later.
_answers: Final[defaultdict[tuple[tuple[int, int], str], int]] = defaultdict(int)


def answered(code: str, target: tuple[int, int]) -> None:
    """Count one answer by its problem code or public status.

    Args:
        code: what was answered.
        target: (activity, SKU) that the request named; nobody need know them.
    """
    _answers[target, code] += 1


def flush() -> dict[tuple[int, int], dict[str, int]]:
    """Hand the collected counts to the registry, and return them by (activity, SKU) and code."""
    by_target: dict[tuple[int, int], dict[str, int]] = {}
    for (target, code), count in _answers.items():
        ANSWERS.labels(code).inc(count)
        by_target.setdefault(target, {})[code] = count
    _answers.clear()
    return by_target
