"""Just enough HTTP/1.1: requests as ready bytes, answers found by search."""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Final, NamedTuple

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked", re.IGNORECASE)
_RETRY_AFTER: Final = re.compile(rb"\r\nretry-after:[ \t]*(\d+)", re.IGNORECASE)


class BadResponse(ValueError):
    """Bytes that are no HTTP/1.1 answer, or more of them than were asked for."""


class Response(NamedTuple):
    """Where one whole answer lies in the bytes that were received."""

    status: int
    body_start: int
    end: int


def request_head(*, method: str, host: str, path: str, headers: dict[str, str]) -> bytes:
    """Return a request without its last empty line: more header lines may follow."""
    lines = [f"{method} {path} HTTP/1.1", f"host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n"


def find_response(data: bytes) -> Response | None:
    """Find the answer that `data` begins with.

    Returns:
        Its place, or None while bytes are missing.

    Raises:
        BadResponse: this is not HTTP/1.1.
    """
    head_end = data.find(_HEAD_END)
    if head_end < 0:
        if not b"HTTP/1.1 ".startswith(data[:9]):
            raise BadResponse(repr(data[:60]))
        return None
    if not data.startswith(b"HTTP/1.1 "):
        raise BadResponse(repr(data[:60]))
    status = int(data[9:12])
    body_start = head_end + 4
    # The spelling of hyper, first: a plain search costs a third of the regular expression.
    at = data.find(b"\r\ncontent-length: ", 0, head_end)
    if at >= 0:
        stop = data.find(b"\r\n", at + 18, head_end)
        end = body_start + int(data[at + 18 : stop if stop >= 0 else head_end])
    elif length := _LENGTH.search(data, 0, head_end):
        end = body_start + int(length[1])
    elif _CHUNKED.search(data, 0, head_end):
        return _find_chunked(data, status, body_start)
    elif status in (204, 304):
        end = body_start
    else:
        raise BadResponse("neither content-length nor chunked")
    return Response(status, body_start, end) if len(data) >= end else None


def _find_chunked(data: bytes, status: int, body_start: int) -> Response | None:
    at = body_start
    while True:
        line_end = data.find(b"\r\n", at)
        if line_end < 0:
            return None
        size = int(data[at:line_end].split(b";")[0], 16)
        at = line_end + 2 + size + 2
        if len(data) < at:
            return None
        if size == 0:
            return Response(status, body_start, at)


def retry_after_s(data: bytes, body_start: int) -> int:
    """Return the seconds of Retry-After; 0 without one."""
    match = _RETRY_AFTER.search(data, 0, body_start)
    return int(match[1]) if match else 0


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request in flight.

    `answered(connection, response, data)` is called for each answer, `lost(connection, reason)`
    when the connection ends; `ticket` is the caller's, untouched here.
    """

    def __init__(
        self,
        *,
        answered: Callable[["Connection", Response, bytes], None],
        lost: Callable[["Connection", str], None],
    ) -> None:
        self._answered = answered
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._reason = "closed"
        self.busy = False
        self.sent_ns = 0
        self.ticket: object = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport  # type: ignore[assignment]

    @property
    def usable(self) -> bool:
        """Whether a request may be sent on it."""
        return self._transport is not None and not self.busy

    def send(self, request: bytes) -> None:
        """Send one request; the connection must be idle."""
        self.busy = True
        self.sent_ns = time.perf_counter_ns()
        if self._transport is not None:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Pass a whole answer on, or keep what came."""
        if self._rest:
            data = self._rest + data
        try:
            response = find_response(data)
        except (BadResponse, ValueError):
            self.abort("bad answer")
            return
        if response is None:
            self._rest = data
            return
        self._rest = b""
        if not self.busy or response.end != len(data):
            self.abort("more than was asked for")
            return
        self.busy = False
        self._answered(self, response, data)

    def abort(self, reason: str) -> None:
        """Cut the connection; `lost` gets the reason."""
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the owner."""
        self._transport = None
        self._lost(self, self._reason)
