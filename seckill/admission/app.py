"""The hot endpoint as an ASGI app: verify → validate → limits → sold out → gather → answer.

`POST /api/v1/activities/{A}/skus/{S}/reservations`. What happens to a gathered batch is in
`purchase.py`. Next file of the tour: `inventory/lua/reserve.lua` (docs/flow.md).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

import msgspec
from django.conf import settings

from seckill.admission import metrics, spans
from seckill.admission.batcher import Batcher, Overloaded
from seckill.admission.catalogue import Catalogue
from seckill.admission.limits import EntryBucket, KnownKeys, Limits, UserBuckets
from seckill.admission.problems import Answer, method_not_allowed, ready
from seckill.admission.purchase import Purchases, Ticket
from seckill.admission.purchase_tokens import HEADER
from seckill.admission.rules import Rules
from seckill.admission.soldout import SoldOut
from seckill.admission.tokens import InvalidToken, TokenVerifier

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

BODY_LIMIT: Final = 4_096
_KEY: Final = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_TRACEPARENT: Final = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class _Body(msgspec.Struct):
    quantity: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


_decode_body: Final = msgspec.json.Decoder(_Body, strict=True).decode


class Refused(Exception):
    """A request that is answered without asking the gate; `code` names the problem."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def hot_target(path: str) -> tuple[int, int] | None:
    """Return (activity, SKU) when the path is the hot endpoint's, ids being plain numbers."""
    parts = path.split("/")
    if (
        len(parts) == 8
        and parts[7] == "reservations"
        and parts[5] == "skus"
        and parts[1:4] == ["api", "v1", "activities"]
    ):
        return _number(parts[4]), _number(parts[6])
    return None


def _number(text: str) -> int:
    """Return a positive id, 0 (which nothing has) for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0


class Admission:
    """The app of one process; `seckill/asgi.py` builds it with its parts.

    Args:
        limits: read for each request, so that a governor may replace it at any time.
    """

    def __init__(
        self,
        *,
        verifier: TokenVerifier,
        catalogue: Catalogue,
        sold_out: SoldOut,
        purchases: Purchases,
        known_keys: KnownKeys,
        rules: Rules,
        limits: Callable[[], Limits],
    ) -> None:
        self._verifier = verifier
        self._catalogue = catalogue
        self._sold_out = sold_out
        self._known_keys = known_keys
        self._rules = rules
        self._limits = limits
        self._users = UserBuckets(limits().user_rate)
        self._entry = EntryBucket()
        self._batcher: Batcher[Ticket] = Batcher(
            purchases.run,
            gather_s=settings.SECKILL_GATHER_MS / 1000,
            batch_max=settings.SECKILL_GATHER_MAX,
            queue_max=settings.SECKILL_ADMISSION_QUEUE,
            slots=settings.SECKILL_ADMISSION_BATCHES,
        )

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, target: tuple[int, int]
    ) -> None:
        """Answer one request for (activity, SKU)."""
        try:
            answer = await self._purchase(scope, receive, target)
        except Refused as refused:
            answer = ready(refused.code)
        metrics.answered(answer.code, target)
        await send(
            {"type": "http.response.start", "status": answer.status, "headers": answer.headers}
        )
        await send({"type": "http.response.body", "body": answer.body})

    async def _purchase(self, scope: Scope, receive: Receive, target: tuple[int, int]) -> Answer:
        if scope["method"] != "POST":
            return method_not_allowed(b"POST")
        headers: dict[bytes, bytes] = dict(scope["headers"])
        user_id = await self._verify(headers.get(b"authorization"))
        key = _idempotency_key(headers.get(b"idempotency-key"))
        quantity = _quantity(headers, await _read_body(headers, receive))
        activity_id, sku_id = target
        # Refused buyers are still asked about at the gate: who holds a reservation gets it.
        rule = self._rules.check(target, user_id, headers.get(HEADER))
        key = rule.key or key

        known = key != "" and (activity_id, user_id, key) in self._known_keys
        limits = self._limits()
        if not known and not (
            self._users.take(user_id) and self._entry.take(limits.entry_rate, limits.entry_burst)
        ):
            raise Refused("THROTTLED")
        refusal = rule.refusal or limits.refusal(activity_id)
        if not self._catalogue.known(target) and not await self._find(target):
            raise Refused("NOT_FOUND")
        if not known and self._sold_out.refuses(target, user_id, quantity):
            raise Refused(refusal or "SOLD_OUT")

        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        ticket = Ticket(
            sku_id=sku_id,
            user_id=user_id,
            quantity=quantity,
            key=key,
            traceparent=_traceparent(headers.get(b"traceparent")),
            refusal=refusal,
            answer=answer,
        )
        span = spans.begin(ticket)
        try:
            self._batcher.submit(activity_id, ticket)
        except Overloaded:
            raise Refused("OVERLOADED") from None
        return await (answer if span is None else span.over(answer))

    async def _verify(self, authorization: bytes | None) -> str:
        """Return the user of the bearer token."""
        if authorization is None or authorization[:7].lower() != b"bearer ":
            raise Refused("UNAUTHENTICATED")
        token = authorization[7:]
        user_id = self._verifier.known(token)
        if user_id is not None:
            return user_id
        try:
            return await self._verifier.verify_async(token)
        except InvalidToken:
            raise Refused("UNAUTHENTICATED") from None

    async def _find(self, target: tuple[int, int]) -> bool:
        """Look an unknown SKU up, at the database's cost only once a second."""
        try:
            return await self._catalogue.find(target) is not None
        except Exception as error:
            raise Refused("UNAVAILABLE") from error

    async def drain(self) -> None:
        """Finish what was taken in; call when no request comes any more."""
        await self._batcher.drain()

    @property
    def queued(self) -> int:
        """Requests that wait for a batch."""
        return self._batcher.queued


def _idempotency_key(header: bytes | None) -> str:
    if header is None:
        return ""
    if not _KEY.fullmatch(header):
        raise Refused("BAD_IDEMPOTENCY_KEY")
    return header.decode("ascii")


def _traceparent(header: bytes | None) -> str:
    """Return the caller's trace context when it is valid, else nothing: the purchase makes one."""
    if header is None or not _TRACEPARENT.fullmatch(header):
        return ""
    return header.decode("ascii")


async def _read_body(headers: dict[bytes, bytes], receive: Receive) -> bytes:
    """Read the body up to its limit, before anything is decoded."""
    length = headers.get(b"content-length", b"")
    if length.isdigit() and (len(length) > 9 or int(length) > BODY_LIMIT):
        raise Refused("TOO_LARGE")
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
        if len(body) > BODY_LIMIT:
            raise Refused("TOO_LARGE")
    if len(body) > BODY_LIMIT:
        raise Refused("TOO_LARGE")
    return body


def _quantity(headers: dict[bytes, bytes], body: bytes) -> int:
    kind = headers.get(b"content-type")
    if kind is not None and kind.split(b";", 1)[0].strip().lower() != b"application/json":
        raise Refused("UNSUPPORTED_MEDIA_TYPE")
    try:
        return _decode_body(body).quantity
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Refused("BAD_BODY") from None
