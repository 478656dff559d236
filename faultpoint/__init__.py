"""Named points at which a test may kill, stop or fail this very process. Costs nothing when unused.

`SECKILL_FAULTPOINTS="web.after_reserve=kill, sender.after_publish=stop@3"` arms points: the action
happens at the Nth hit (1 when not given). `SECKILL_FAULTPOINT_DIR` gets an empty file named after
the point just before it acts, so that a test can wait for it. Actions:

- `kill`: SIGKILL to this process;
- `stop`: SIGSTOP to this process (the test sends SIGCONT);
- `raise`: RuntimeError.

`SECKILL_FAULTPOINT_ARM_DIR` names a folder in which a file, called like a point and holding an
action, arms it for whichever process passes it next (that one takes the file away): a fault search
arms running processes so.

A point that nobody armed is a call of a function that returns at once. Production refuses to start
with armed points (system check `seckill.E011`) unless SECKILL_FAULTPOINTS_ALLOWED=1 stands beside.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Final

POINTS: Final = frozenset(
    {
        "web.before_reserve",
        "web.after_reserve",  # after the Lua call, before the send
        "web.after_send",  # after the send, before mark_sent
        "web.after_mark",
        "consumer.after_receive",
        "consumer.before_commit",  # the last statement ran, COMMIT did not
        "consumer.before_announce",  # committed, gate and buyers do not know
        "consumer.after_commit",  # committed, not acked
        "sender.after_claim",
        "sender.after_publish",  # published, not marked
        "scanner.after_claim",  # holds leases, nothing sent
        "scanner.after_send",  # sent, not marked
        "drain.after_store",  # the dead letter is stored, not acked
        "release.after_gate",  # given back in Redis, not DONE
        "cancel.before_commit",
        "payment.after_record",  # the attempt is committed, nothing is sent
        "payment.after_call",  # the provider has answered, nothing of it is written
        "payment.before_commit",
        "refund.after_record",  # SUBMITTED is committed, nothing is sent
        "refund.after_call",
        "refund.before_commit",
        "webhook.before_commit",
        "effect.before_commit",  # inbox and effect are written, COMMIT did not run
        "notify.sending",  # SENDING is committed, nothing is sent
        "notify.sent",  # the mail server has it, the row does not know
        "operation.after_gate",  # a gate operation reached Redis, not DONE
        "operation.after_row",  # its row is committed, Redis does not know
        "rebuild.after_note",  # the run (and the loss) is noted, the gate does not know
        "rebuild.after_close",
        "rebuild.after_wait",
        "rebuild.after_begin",  # REBUILDING, nothing read
        "rebuild.before_commit",
        "rebuild.after_commit",  # settled in PostgreSQL, the gate not written
        "rebuild.after_write",  # the gate is open again, the note stands
        "governor.before_publish",  # decided, nobody knows
        "governor.after_publish",
        "replay.after_claim",  # items are CLAIMED, nothing is sent
        "replay.before_commit",  # the outbox row (or the effect) is written, COMMIT did not run
        "replay.after_commit",
        "replay.before_settle",  # outcomes are read and written, COMMIT did not run
        "replay.before_verify",  # invariants were checked, nothing of it is written
        "replay.before_advance",  # the batch's next state is written, COMMIT did not run
        "replay.before_complete",
        "mark.after_gate",  # the mark moved in Redis, PostgreSQL does not know
    }
)


def _parse(spec: str) -> dict[str, tuple[str, int]]:
    armed: dict[str, tuple[str, int]] = {}
    for part in filter(None, (piece.strip() for piece in spec.split(","))):
        point, _, action = part.partition("=")
        verb, _, nth = action.partition("@")
        known = point in POINTS and verb in {"kill", "stop", "raise"}
        if not known or (nth and not nth.isdigit()):
            raise ValueError(f"SECKILL_FAULTPOINTS: {part!r} is not <point>=kill|stop|raise[@N]")
        armed[point] = (verb, int(nth or 1))
    return armed


def _read() -> dict[str, tuple[str, int]]:
    """Return what the environment arms, or end the process with one line, as the settings do."""
    try:
        return _parse(os.environ.get("SECKILL_FAULTPOINTS", ""))
    except ValueError as error:
        sys.stderr.write(f"seckill: {error}\n")
        raise SystemExit(78) from None  # EX_CONFIG


_armed: Final = _read()
_ARM_DIR: Final = os.environ.get("SECKILL_FAULTPOINT_ARM_DIR", "")
_hits: Final[dict[str, int]] = {}


def armed() -> frozenset[str]:
    """Return the names of the points that may act in this process."""
    return POINTS if _ARM_DIR else frozenset(_armed)


def hit(point: str) -> None:
    """Pass a named point; acts only when armed and this is the Nth hit."""
    if _ARM_DIR:
        _hit_by_file(point)
    if not _armed or point not in _armed:
        return
    action, nth = _armed[point]
    _hits[point] = _hits.get(point, 0) + 1
    if _hits[point] != nth:
        return
    marker = os.environ.get("SECKILL_FAULTPOINT_DIR")
    if marker:
        (Path(marker) / point).touch()
    _act(action, point)


def _hit_by_file(point: str) -> None:
    """Act when a file arms this point; one process alone gets to rename it."""
    taken = Path(_ARM_DIR) / f"{point}.taken"
    try:
        (Path(_ARM_DIR) / point).rename(taken)
    except FileNotFoundError:
        return
    _act(taken.read_text().strip(), point)


def _act(action: str, point: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        raise RuntimeError(f"fault point {point}")
