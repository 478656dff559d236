"""What a loop tells its shell."""

from messaging.pulse import LoopState, Pulse


def test_a_loop_that_runs_again_no_longer_says_why_it_waited() -> None:
    pulse = Pulse()

    pulse.report(LoopState.WAITING, reason="OperationalError")
    pulse.report(claimed=3)
    assert pulse.snapshot() == (LoopState.WAITING, {"reason": "OperationalError", "claimed": 3})

    pulse.report(LoopState.RUNNING, done=7)
    assert pulse.snapshot() == (LoopState.RUNNING, {"claimed": 3, "done": 7})
