"""The shell around every loop: signals, heartbeat, watchdog, metrics port, exit code.

A worker process runs one or more loops, each in its own thread. SIGTERM (or SIGINT) sets the stop
signal: loops stop taking, finish what is in flight and return; a second signal ends the process at
once. SIGUSR1 writes all stacks to stderr. See docs/flow.md.
"""

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

import structlog
from django.conf import settings
from django.db import connections

import telemetry
from messaging.exit_codes import ExitCode
from messaging.heartbeat import Heartbeats
from messaging.pulse import Pulse
from messaging.watchdog import Watchdog

StopSignal = threading.Event

log = structlog.get_logger(__name__)

_TICK_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Loop:
    """One loop of a process.

    Args:
        name: short, unique in the process; part of the heartbeat's worker id.
        run: the loop. It must call `pulse.touch()` at least every few seconds, and return soon
            after `stop` is set. What it raises ends the process with LOOP_CRASHED.
        group: consumer group that it works for, else empty.
    """

    name: str
    run: Callable[[StopSignal, Pulse], None]
    group: str = ""
    pulse: Pulse = field(default_factory=Pulse)


def serve(*, role: str, loops: Sequence[Loop], stop: StopSignal | None = None) -> ExitCode:
    """Run loops until they end, or until a signal asks them to.

    Args:
        role: what the process is (consumer, sender, scanner).
        loops: at least one.
        stop: a stop signal of the caller's; a new one when None.

    Returns:
        OK, LOOP_CRASHED, or GRACE_EXCEEDED when work in flight did not end within
        SECKILL_SIGTERM_GRACE_S (the caller should then end the process with `leave`).

    Cost:
        One thread a loop, one for the heartbeat (a statement a second), one for the watchdog.
    """
    stop = stop or StopSignal()
    crashed: list[str] = []
    threads = [
        threading.Thread(target=_run, args=(loop, stop, crashed), name=loop.name, daemon=True)
        for loop in loops
    ]
    with _signals(stop), _metrics_port():
        watchdog = Watchdog({loop.name: loop.pulse for loop in loops}, settings.SECKILL_WATCHDOG_S)
        heartbeats = Heartbeats(
            role=role, members=[(loop.name, loop.group, loop.pulse) for loop in loops]
        )
        for thread in threads:
            thread.start()
        watchdog.start()
        heartbeats.start()
        log.info("worker_started", role=role, loops=[loop.name for loop in loops])
        while any(thread.is_alive() for thread in threads) and not stop.wait(_TICK_S):
            pass
        in_time = _join(threads, grace_s=settings.SECKILL_SIGTERM_GRACE_S - 1)
        watchdog.stop()
        heartbeats.stop()
    code = ExitCode.LOOP_CRASHED if crashed else ExitCode.OK
    if not in_time:
        code = ExitCode.GRACE_EXCEEDED
        faulthandler.dump_traceback(all_threads=True)
    log.info("worker_stopped", role=role, exit_code=code.value, exit_name=code.name)
    return code


def leave(code: ExitCode) -> NoReturn:
    """End the process now: threads of libraries must not keep it past its grace time."""
    telemetry.flush()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(loop: Loop, stop: StopSignal, crashed: list[str]) -> None:
    loop.pulse.touch()
    try:
        loop.run(stop, loop.pulse)
    except Exception:
        log.exception("loop_crashed", loop=loop.name, group=loop.group)
        crashed.append(loop.name)
        stop.set()
    finally:
        loop.pulse.finish()
        connections.close_all()


def _join(threads: Sequence[threading.Thread], *, grace_s: float) -> bool:
    """Wait for the threads; False when one of them is still working at the end of the grace."""
    deadline = time.monotonic() + grace_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


@contextmanager
def _signals(stop: StopSignal) -> Iterator[None]:
    """Install the handlers, and put the old ones back at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(ExitCode.SECOND_SIGNAL)
        stop.set()

    old = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    faulthandler.register(signal.SIGUSR1, file=sys.__stderr__ or 2, all_threads=True)
    try:
        yield
    finally:
        faulthandler.unregister(signal.SIGUSR1)
        for number, handler in old.items():
            signal.signal(number, handler)


@contextmanager
def _metrics_port() -> Iterator[None]:
    """Serve /metrics on SECKILL_METRICS_PORT while the loops run; 0 means not at all."""
    if not settings.SECKILL_METRICS_PORT:
        yield
        return
    from prometheus_client import start_http_server

    server, thread = start_http_server(
        settings.SECKILL_METRICS_PORT, addr=settings.SECKILL_METRICS_HOST
    )
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
