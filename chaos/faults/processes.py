"""Faults of our own processes and of the network between them and the servers."""

import os
import signal
import time
from typing import Final

import psutil  # type: ignore[import-untyped,unused-ignore]

from chaos.faults.scene import Scene
from chaos.plan import PlannedFault

_ACTIONS: Final = {
    "kill_at_point": "kill",
    "kill_at_rebuild": "kill",
    "stop_at_point": "stop",
    "raise_at_point": "raise",
    "kill_at_replay": "kill",
    "stop_at_replay": "stop",
    "raise_at_replay": "raise",
    "kill_at_governor": "kill",
}
AT_POINTS: Final = frozenset(_ACTIONS)
_LATE_S: Final = 0.05
_TAKEN_POLL_S: Final = 0.05
_TAKEN_WITHIN_S: Final = {"stop_at_point": 6.0, "stop_at_replay": 40.0}


def _at_point(scene: Scene, fault: PlannedFault) -> str:
    """Arm a point; of a stopped process, let it go on after a while."""
    path = scene.machine.points / fault.target
    path.write_text(_ACTIONS[fault.name], encoding="utf-8")
    if fault.name not in _TAKEN_WITHIN_S:
        return ""
    taken = path.with_name(f"{fault.target}.taken")
    deadline = time.monotonic() + _TAKEN_WITHIN_S[fault.name]
    while not taken.exists():
        if not path.exists() and not taken.exists():
            return "taken back"
        if time.monotonic() > deadline:
            return "the point was not passed"
        time.sleep(_TAKEN_POLL_S)
    time.sleep(fault.for_s)
    wake(scene)
    return ""


def disarm(scene: Scene, fault: PlannedFault) -> str:
    """Take a point back; return "" when it struck."""
    path = scene.machine.points / fault.target
    taken = path.with_name(f"{fault.target}.taken")
    struck = taken.exists()
    path.unlink(missing_ok=True)
    taken.unlink(missing_ok=True)
    return "" if struck else "the point was not passed"


def wake(scene: Scene) -> None:
    """SIGCONT to whatever stands still, also to single workers of the web server."""
    scene.machine.wake_all()
    for state in scene.machine.rig.supervisor.states():
        try:
            children = psutil.Process(state.pid).children() if state.pid else []
        except psutil.Error:
            continue
        for child in children:
            os.kill(child.pid, signal.SIGCONT)


def _kill(scene: Scene, fault: PlannedFault) -> str:
    reached = scene.machine.signal(fault.target, signal.SIGKILL, only_first=True)
    return "" if reached else "was down already"


def _stop(scene: Scene, fault: PlannedFault) -> str:
    reached = scene.machine.signal(fault.target, signal.SIGSTOP)
    time.sleep(fault.for_s)
    wake(scene)
    return "" if reached else "was down already"


def _soft(scene: Scene, fault: PlannedFault) -> str:
    reached = scene.machine.signal(fault.target, signal.SIGTERM)
    return "" if reached else "was down already"


def _mass(scene: Scene, fault: PlannedFault) -> str:
    reached = [
        pid
        for program in ("orders", "core", "side")
        for pid in scene.machine.signal(program, signal.SIGKILL)
    ]
    return "" if reached else "all were down already"


def _consumers_late(scene: Scene, fault: PlannedFault) -> str:
    scene.machine.signal("orders", signal.SIGSTOP)
    time.sleep(fault.for_s)
    wake(scene)
    return ""


def _clock(scene: Scene, fault: PlannedFault) -> str:
    if scene.machine.faketime is None:
        return "not injected: libfaketime is not installed (Debian: apt-get install libfaketime)"
    program, _, offset = fault.target.partition(":")
    scene.machine.give_clock(program)
    scene.machine.turn_clock(program, offset)
    time.sleep(fault.for_s)
    scene.machine.turn_clock(program, "+0")
    return ""


def _black_hole(scene: Scene, fault: PlannedFault) -> str:
    scene.machine.wires.silence(fault.target)
    time.sleep(fault.for_s)
    scene.machine.wires.heal(fault.target)
    return ""


def _lost_answers(scene: Scene, fault: PlannedFault) -> str:
    scene.machine.wires.lose_answers(fault.target)
    time.sleep(fault.for_s)
    scene.machine.wires.heal(fault.target)
    return ""


def _cut(scene: Scene, fault: PlannedFault) -> str:
    scene.machine.wires.cut(fault.target)
    return ""


def _slow(scene: Scene, fault: PlannedFault) -> str:
    scene.machine.wires.slow_down(fault.target, _LATE_S)
    time.sleep(fault.for_s)
    scene.machine.wires.heal(fault.target)
    return ""


INJECTORS: Final = {
    **dict.fromkeys(AT_POINTS, _at_point),
    "kill_process": _kill,
    "stop_process": _stop,
    "soft_restart": _soft,
    "mass_restart": _mass,
    "consumers_late": _consumers_late,
    "clock_skew": _clock,
    "black_hole": _black_hole,
    "lost_answers": _lost_answers,
    "cut": _cut,
    "slow_network": _slow,
}
