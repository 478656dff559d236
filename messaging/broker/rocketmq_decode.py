"""From the parts of one receive answer to our records."""

import hashlib
import logging
import time
import zlib
from typing import Any, Final

from messaging.broker.base import ReceivedMessage
from messaging.broker.rocketmq_channel import protocol

logger = logging.getLogger(__name__)

_MAX_BODY: Final = 4 * 1024 * 1024
_AUTO_HEADER: Final = 32  # zlib finds out itself whether gzip or zlib was used


class Answer:
    """The parts of one receive: messages, status and the time at which the proxy sent them."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.code = 0
        self.text = ""
        self.delivered_at_ms = 0

    def take(self, part: Any) -> None:
        """Add one part of the stream."""
        kind = part.WhichOneof("content")
        if kind == "message":
            self.messages.append(part.message)
        elif kind == "status":
            self.code, self.text = part.status.code, part.status.message
        elif kind == "delivery_timestamp":
            self.delivered_at_ms = part.delivery_timestamp.ToMilliseconds()


def decode(
    answer: Answer, *, topic: str, called_at: float, invisible_s: int
) -> list[ReceivedMessage]:
    """Turn an answer into records; messages whose body is damaged are left out and come again.

    Args:
        answer: a finished answer.
        topic: registry's short name.
        called_at: monotonic time just before the call.
        invisible_s: what was asked for.
    """
    invisible_until = _counted_from(answer.delivered_at_ms, called_at) + invisible_s
    received = []
    for message in answer.messages:
        body = _body(message)
        if body is None:
            continue
        system = message.system_properties
        received.append(
            ReceivedMessage(
                topic=topic,
                message_id=system.message_id,
                body=body,
                tag=system.tag,
                keys=tuple(system.keys),
                properties=dict(message.user_properties),
                delivery_attempt=system.delivery_attempt,
                receipt_handle=system.receipt_handle,
                invisible_until=invisible_until,
                stored_at_ms=system.store_timestamp.ToMilliseconds(),
                born_at_ms=system.born_timestamp.ToMilliseconds(),
                store_host=system.store_host,
                queue_id=system.queue_id,
                queue_offset=system.queue_offset,
            )
        )
    return received


def _counted_from(delivered_at_ms: int, called_at: float) -> float:
    """Return the monotonic time from which the invisible time is counted.

    It began at the broker, before the answer reached us. A process that was stopped in between
    would otherwise believe in time that is already over. The proxy's wall clock tells how long
    ago it answered; a wrong clock cannot move the result out of [called_at, now].
    """
    now = time.monotonic()
    if not delivered_at_ms:
        return called_at
    age = time.time() - delivered_at_ms / 1000
    return min(now, max(called_at, now - age))


def _body(message: Any) -> bytes | None:
    """Check the digest, then unpack; None when the body is damaged."""
    system = message.system_properties
    body: bytes = message.body
    if _digest(system.body_digest.type, body) not in (None, system.body_digest.checksum):
        logger.error("body of %s is damaged: it is not acked and comes again", system.message_id)
        return None
    if system.body_encoding != protocol().definitions.Encoding.GZIP:
        return body
    try:
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | _AUTO_HEADER)
        unpacked = unpacker.decompress(body, _MAX_BODY)
    except zlib.error:
        unpacked, complete = b"", False
    else:
        complete = unpacker.eof
    if not complete:
        logger.error("body of %s cannot be unpacked: it comes again", system.message_id)
        return None
    return unpacked


def _digest(kind: int, body: bytes) -> str | None:
    """Return the digest in the broker's spelling; None for a kind that nobody asked us to check."""
    types = protocol().definitions.DigestType
    if kind == types.CRC32:
        return f"{zlib.crc32(body):08X}"
    if kind == types.MD5:
        return hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    if kind == types.SHA1:
        return hashlib.sha1(body, usedforsecurity=False).hexdigest().upper()
    return None
