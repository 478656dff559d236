"""Injects planned faults, each in a thread of its own; everything is healed at the end."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog
import urllib3

from chaos.faults import broker, governor, processes, provider, stores
from chaos.faults.scene import Scene
from chaos.plan import PlannedFault

log = structlog.get_logger(__name__)

Injector = Callable[[Scene, PlannedFault], str]
INJECTORS: Final[dict[str, Injector]] = {
    **processes.INJECTORS,
    **stores.INJECTORS,
    **provider.INJECTORS,
    **broker.INJECTORS,
    **governor.INJECTORS,
}


@dataclass
class Injected:
    """What became of a fault: `note` is "" as planned, else why it did not strike."""

    fault: PlannedFault
    note: str = "never came"


@dataclass
class Injection:
    """All faults of a seed."""

    scene: Scene
    faults: tuple[PlannedFault, ...]
    done: list[Injected] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def begin(self, opened_at: float) -> None:
        """Start the clock of every fault.

        Args:
            opened_at: when the sale opened, on the monotonic clock.
        """
        for fault in self.faults:
            record = Injected(fault=fault)
            self.done.append(record)
            thread = threading.Thread(target=self._play, args=(record, opened_at), daemon=True)
            thread.start()
            self._threads.append(thread)

    def end(self, *, timeout_s: float) -> None:
        """Wait until every fault is over.

        Raises:
            RuntimeError: one is not: the search itself is broken.
        """
        deadline = time.monotonic() + timeout_s
        for record in self.done:
            if record.fault.name in processes.AT_POINTS:  # who waits for it need not wait longer
                (self.scene.machine.points / record.fault.target).unlink(missing_ok=True)
        for thread, record in zip(self._threads, self.done, strict=True):
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                raise RuntimeError(f"{record.fault} does not end")
        for record in self.done:
            if record.fault.name in processes.AT_POINTS:
                record.note = processes.disarm(self.scene, record.fault)

    def _play(self, record: Injected, opened_at: float) -> None:
        fault = record.fault
        time.sleep(max(0.0, opened_at + fault.at_s - time.monotonic()))
        try:
            record.note = INJECTORS[fault.name](self.scene, fault)
        except Exception as error:
            log.exception("fault_not_injected", fault=str(fault))
            record.note = f"not injected: {type(error).__name__}: {error}"[:200]


def note_unused(scene: Scene, done: list[Injected]) -> None:
    """Armed is not struck: say so of every fault of the provider that no call met.

    Call it before the provider forgets what is armed.
    """
    try:
        provider.note_used(scene)
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        log.warning("armed_faults_not_looked_at", error=str(error))
    for armed in scene.armed:
        for record in done:
            if record.fault is armed.fault and not record.note and not armed.used:
                record.note = provider.NOT_USED
