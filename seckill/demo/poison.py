"""Messages that no code can read, each of a buyer whom the gate has accepted."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec
from django.conf import settings
from ulid import ULID

from inventory import verbs
from inventory.contracts import Reservation, ReserveRequest
from inventory.gate import gate
from messaging.broker import broker
from messaging.broker.base import SendOutcome
from orders.scan.resend import create_order_message
from seckill.demo.sale import Sale

_OWNER: Final = "demo-canary"


def newer_schema(body: bytes) -> bytes:
    """Write the body as a producer of tomorrow would: another version, nothing else."""
    fields = msgspec.json.decode(body)
    return msgspec.json.encode(fields | {"schema_version": 2, "producer": "admission-canary"})


def cut_off(body: bytes) -> bytes:
    """Cut the body in the middle, as a broken proxy does."""
    return body[: len(body) // 2]


def buy_poisoned(
    sale: Sale, users: Sequence[str], *, spoil: Callable[[bytes], bytes]
) -> list[Reservation]:
    """Reserve for buyers and send spoilt messages in the name of admission.

    Raises:
        RuntimeError: the gate or the broker refused.
    """
    replies = gate().run(
        verbs.reserve(
            activity_id=sale.activity_id,
            requests=[_request(sale, user) for user in users],
            lease_owner=_OWNER,
            lease_ms=30_000,
        )
    )
    made = [reply.reservation for reply in replies if reply.reservation is not None]
    producer = broker().producer()
    try:
        messages = [create_order_message(reservation, send_attempt=1) for reservation in made]
        result = producer.send(
            [replace(message, body=spoil(message.body)) for message in messages],
            timeout_ms=settings.SECKILL_PUBLISH_TIMEOUT_MS,
        )
    finally:
        producer.close()
    if len(made) < len(users) or result.outcome is not SendOutcome.CONFIRMED:
        raise RuntimeError(f"the poison did not get out: {result}")
    gate().run(
        verbs.mark_sent(
            activity_id=sale.activity_id,
            reservation_ids=[reservation.reservation_id for reservation in made],
            lease_owner=_OWNER,
        )
    )
    return made


def _request(sale: Sale, user: str) -> ReserveRequest:
    suffix = str(ULID())
    return ReserveRequest(
        sku_id=sale.sku_id,
        user_id=user,
        quantity=1,
        idempotency_key=suffix,
        fingerprint="demo",
        request_id=f"req_{suffix}",
        reservation_id=f"rsv_{suffix}",
        order_id=f"ord_{suffix}",
        message_id=f"evt_{suffix}",
        traceparent=f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01",
    )
