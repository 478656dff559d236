"""A consumer's session with the proxy: the telemetry stream that makes `receive` possible.

The proxy answers a receive only for a client whose settings it knows, and forgets them when it
restarts ("settings is null"). So one thread keeps a telemetry stream open and sends the settings
again every few seconds; that also serves as the heartbeat, for the proxy registers the client each
time. A stream that ends is opened again at once. Source: docs/messaging.md.
"""

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import grpc

from messaging.broker.rocketmq_channel import Connection, protocol

logger = logging.getLogger(__name__)

_BEAT_S: Final = 5.0
_SILENCE_S: Final = 3 * _BEAT_S
_REOPEN_S: Final = 0.1


class Session:
    """Keeps the proxy informed about one consumer on the given stub's connection."""

    def __init__(self, *, connection: Connection, stub: Any, client_id: str, settings: Any) -> None:
        self._connection = connection
        self._stub = stub
        self._client_id = client_id
        self._command = protocol().messages.TelemetryCommand(settings=settings)
        self._ready = threading.Event()
        self._closed = threading.Event()
        self._wake = threading.Event()
        self._answered_at = 0.0
        self._call: Any = None
        self.last_problem = "no answer yet"
        self._thread = threading.Thread(target=self._run, name="rocketmq-session", daemon=True)
        self._thread.start()

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the proxy has confirmed our settings."""
        return self._ready.wait(timeout_s)

    def resync(self) -> None:
        """Send the settings again now: the proxy answered as if it did not know them."""
        self._ready.clear()
        self._wake.set()

    def close(self) -> None:
        """End the stream and its thread."""
        self._closed.set()
        self._wake.set()
        self._ready.set()  # nobody waits for a closed session
        if self._call is not None:
            self._call.cancel()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._closed.is_set():
            wake = self._wake = threading.Event()
            self._answered_at = time.monotonic()
            try:
                self._call = self._stub.Telemetry(
                    self._commands(wake), metadata=self._connection.metadata(self._client_id)
                )
                if self._closed.is_set():
                    self._call.cancel()
                for command in self._call:
                    self._read(command)
                self._lost("the proxy ended the telemetry stream")
            except grpc.RpcError as error:
                self._lost(f"{error.code().name}: {error.details()}")
            except ValueError as error:  # the channel is closed
                self._lost(str(error))
            wake.set()
            self._closed.wait(_REOPEN_S)

    def _commands(self, wake: threading.Event) -> Iterator[Any]:
        """Yield the settings at once and then at every beat or wake-up, while `wake` is current."""
        while self._wake is wake and not self._closed.is_set():
            yield self._command
            wake.wait(_BEAT_S)
            wake.clear()
            if self._wake is wake and time.monotonic() - self._answered_at > _SILENCE_S:
                self._call.cancel()  # connected, but nobody answers: a hung proxy
                return

    def _read(self, command: Any) -> None:
        self._answered_at = time.monotonic()
        if not command.HasField("settings"):
            return
        if command.status.code == protocol().definitions.Code.OK:
            self._ready.set()
        else:
            self._lost(f"{command.status.code}: {command.status.message}")

    def _lost(self, problem: str) -> None:
        if self._closed.is_set():
            return
        if self._ready.is_set():
            logger.warning("broker session lost, opening it again: %s", problem)
        self.last_problem = problem
        self._ready.clear()
