"""Streams what is read from the database without holding the event loop."""

from collections.abc import AsyncIterator, Iterator
from itertools import islice

from asgiref.sync import sync_to_async

_AT_A_TIME = 500


async def in_thread(lines: Iterator[str]) -> AsyncIterator[str]:
    """Yield what an iterator yields, read in pieces in the request's own thread."""

    def some() -> str:
        return "".join(islice(lines, _AT_A_TIME))

    while text := await sync_to_async(some)():
        yield text
