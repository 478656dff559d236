"""The decision as one consumer loop obeys it."""

from typing import Final

from messaging.pace import Pace, PaceOf
from messaging.pulse import LoopState, Pulse
from messaging.worker import StopSignal
from seckill.governor.follower import current

_TURN_S: Final = 0.25


def loop_pace(group: str, *, number: int) -> Pace:
    """Return what a loop may do now.

    Args:
        group: its consumer group.
        number: its place among the group's loops of this process, from 0; the first ones work.
    """
    pace = current().pace(group)
    if number < pace.workers:
        return Pace(batch=pace.batch)
    return Pace(batch=0, spare=pace.workers > 0)


def wait_for_work(pace: PaceOf, stop: StopSignal, pulse: Pulse) -> None:
    """Wait until the loop may work, or the process ends."""
    while pace().batch == 0 and not stop.is_set():
        pulse.touch()
        pulse.report(LoopState.RUNNING, batch=0, spare=True)
        stop.wait(_TURN_S)
