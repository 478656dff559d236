"""A source that fails, hangs or gets slow costs its own numbers, never the snapshot."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from seckill.monitor import part as parts
from seckill.monitor.part import Part


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(1)
    yield pool
    pool.shutdown(wait=True)


def test_a_failure_keeps_the_last_value_and_says_since_when(threads: ThreadPoolExecutor) -> None:
    clock, answers = Clock(), iter([7, OSError("away"), OSError("away"), 8])

    def read() -> int:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    part = Part(name="store", read=read, threads=threads, clock=clock)
    assert part.refresh(1_000) is None
    assert (part.value, part.read_at_ms) == (7, 1_000)

    for now_ms in (2_000, 3_000):
        clock.now_s += 1
        problem = part.refresh(now_ms)
        assert problem is not None
        assert (problem.part, problem.error, problem.since_ms) == ("store", "OSError", 2_000)
        assert (part.value, part.read_at_ms) == (7, 1_000)

    clock.now_s += 1
    assert part.refresh(4_000) is None
    assert (part.value, part.read_at_ms) == (8, 4_000)


def test_a_source_that_hangs_is_waited_for_once_and_its_late_answer_counts(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PATIENCE_S", 0.01)
    clock, gate, calls = Clock(), threading.Event(), []

    def read() -> str:
        calls.append(1)
        assert gate.wait(10)
        return "late"

    part = Part(name="store", read=read, threads=threads, clock=clock)
    for now_ms in (1_000, 2_000, 3_000):
        clock.now_s += 1
        problem = part.refresh(now_ms)
        assert problem is not None
        assert (problem.error, problem.since_ms) == ("it does not answer", 1_000)
    assert len(calls) == 1, "a second read was piled on the first"

    gate.set()
    threads.submit(lambda: None).result(10)  # the one thread is through with the read
    clock.now_s += 1
    assert part.refresh(4_000) is None
    assert part.value == "late"


def test_a_slow_source_is_asked_at_most_a_twentieth_of_the_time(
    threads: ThreadPoolExecutor,
) -> None:
    clock, calls = Clock(), []

    def read() -> int:
        calls.append(clock.now_s)
        clock.now_s += 0.2
        return len(calls)

    part = Part(name="counts", read=read, threads=threads, clock=clock)
    part.refresh(0)
    for _ in range(9):
        clock.now_s += 0.5
        part.refresh(0)
    assert len(calls) == 2
    assert calls[1] - calls[0] == pytest.approx(4.0, abs=0.5)
