"""A queue under the decision, second by second: for the documentation's plot and for tests (pure).

As delayed as the real thing: what is decided on was measured a second ago (heartbeats), and is
obeyed a quarter of a second after it was published.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from seckill.admission.limits import EntryBucket
from seckill.governor.decide import decide
from seckill.governor.memory import Means, Memory
from seckill.governor.signals import Signals
from seckill.governor.view import Level

_TURNS: Final = 20  # in a second
_FIRST_OBEYED: Final = 5  # turns after a decision: a quarter of a second


@dataclass(frozen=True, kw_only=True, slots=True)
class Second:
    """One second: what came, what got in, what was made, how old the oldest in the queue was."""

    at_s: int
    offered: int
    accepted: int
    ordered: int
    lag_s: float
    level: Level


def simulate(
    *, offered_per_s: int, crowd_s: int, capacity_per_s: int, seconds: int, means: Means | None
) -> list[Second]:
    """Let a crowd come and see what becomes of the queue.

    Args:
        offered_per_s: buyers a second.
        crowd_s: for so many seconds.
        capacity_per_s: orders a second that the consumers make.
        seconds: to simulate.
        means: of the governor; None for none.
    """
    now = [0.0]
    bucket = EntryBucket(clock=lambda: now[0])
    queue: deque[tuple[float, int]] = deque()  # accepted at, how many are left
    memory, rate, burst, coming = Memory(), 0.0, 0.0, (0.0, 0.0)
    measured, level = Signals(instances=2), Level.NORMAL
    found: list[Second] = []
    for second in range(seconds):
        if means is not None:
            view, memory = decide(measured, memory, means=means, now_s=float(second))
            level, coming = view.level, (view.entry_rate, view.entry_burst)
        offered = accepted = ordered = 0
        worst = 0.0
        for turn in range(_TURNS):
            now[0] = second + turn / _TURNS
            if turn == _FIRST_OBEYED:
                rate, burst = coming
            buyers = offered_per_s // _TURNS if second < crowd_s else 0
            let_in = sum(bucket.take(rate, burst) for _ in range(buyers))
            if level is Level.FAIL_CLOSED and turn >= _FIRST_OBEYED:
                let_in = 0
            offered, accepted = offered + buyers, accepted + let_in
            if let_in:
                queue.append((now[0], let_in))
            ordered += _drain(queue, capacity_per_s // _TURNS)
            worst = max(worst, now[0] - queue[0][0] if queue else 0.0)
        waiting = sum(count for _, count in queue)
        measured = replace(
            measured,
            lag_s=worst,
            backlog=waiting,
            arrival_per_s=float(accepted),
            drain_per_s=float(ordered),
            busy_per_s=float(capacity_per_s),
        )
        found.append(
            Second(
                at_s=second,
                offered=offered,
                accepted=accepted,
                ordered=ordered,
                lag_s=round(worst, 2),
                level=level,
            )
        )
    return found


def _drain(queue: "deque[tuple[float, int]]", most: int) -> int:
    done = 0
    while queue and done < most:
        at, count = queue[0]
        taken = min(count, most - done)
        done += taken
        if taken == count:
            queue.popleft()
        else:
            queue[0] = (at, count - taken)
    return done
