"""The sampler as a loop of a worker process: whichever process holds the lease samples."""

import os
import socket
import time
from typing import Final

import msgspec
import structlog

from inventory.errors import InventoryError
from inventory.gate import gate
from messaging.pulse import LoopState, Pulse
from messaging.worker import Loop, StopSignal
from seckill.monitor import store
from seckill.monitor.sampler import Sampler

TICK_S: Final = 1.0

log = structlog.get_logger(__name__)


def monitor_loop() -> Loop:
    """Return the loop, for the worker's shell; several processes may have it, one samples."""
    return Loop(name="monitor", run=run)


def run(stop: StopSignal, pulse: Pulse) -> None:
    """Sample once a second until told to stop. Without Redis nobody sees anything: it waits."""
    name = f"{socket.gethostname()[:40]}:{os.getpid()}"
    sampler = Sampler(name=name)
    mine = False
    try:
        while not stop.is_set():
            began = time.monotonic()
            pulse.touch()
            try:
                mine = sample_once(sampler, name)
            except InventoryError as error:
                mine = False
                pulse.report(LoopState.WAITING, reason=type(error).__name__)
            else:
                pulse.report(LoopState.RUNNING, sampling=mine)
            stop.wait(max(0.05, TICK_S - (time.monotonic() - began)))
    finally:
        sampler.close()
        if mine:
            _give_up()


def sample_once(sampler: Sampler, name: str) -> bool:
    """Sample and publish, unless another process does; tells whether this one did.

    Raises:
        InventoryError: Redis did not answer.
    """
    mine, now_ms = gate().run(store.take_lease(name=name))
    if not mine:
        return False
    snapshot = sampler.sample(now_ms)
    gate().run(
        store.publish(
            snapshot=msgspec.json.encode(snapshot), point=msgspec.json.encode(snapshot.point())
        )
    )
    return True


def _give_up() -> None:
    try:
        gate().run(store.give_up())
    except InventoryError as error:
        log.info("monitor_lease_not_left", error=type(error).__name__)
