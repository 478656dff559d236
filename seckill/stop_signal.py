"""Tells a web process that it shall stop, before its server says so.

The server ends the life of the application only when the last connection is closed, and a stream
is a connection that does not close by itself: whoever holds streams must hear of SIGTERM first.
"""

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType


def on_sigterm(call: Callable[[], None]) -> Callable[[], None]:
    """Call back in the running loop when SIGTERM comes; the server's own handler runs as before.

    Does nothing where no server handles SIGTERM (tests, another thread than the main one).

    Args:
        call: called once for each signal, in the loop.

    Returns:
        How to listen no more.
    """
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        return lambda: None
    loop = asyncio.get_running_loop()

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(call)
        before(number, frame)

    # The loop's own handler hangs on the wake-up descriptor, not on this one: both run.
    signal.signal(signal.SIGTERM, handle)
    return lambda: _restore(handle, before)


def _restore(
    ours: Callable[[int, FrameType | None], None],
    before: Callable[[int, FrameType | None], object],
) -> None:
    if signal.getsignal(signal.SIGTERM) is ours:
        signal.signal(signal.SIGTERM, before)
