"""Calibration: the cheapest ASGI answer there is, to tell how fast this machine is today."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
_START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"11")],
}
_BODY: Message = {"type": "http.response.body", "body": b'{"ok":true}'}


async def application(
    scope: Message,
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    """Read the body, answer."""
    if scope["type"] != "http":
        return
    await receive()
    await send(_START)
    await send(_BODY)
