"""The provider's HTTP interface, a plain ASGI application.

- POST /v1/payments (Idempotency-Key; amount_cents, currency, reference, notify_url): 201 new,
  200 known, 202 pending, 402 declined, 409 key of another request, 422 refused
- POST /v1/payments/{id}/refunds (Idempotency-Key; amount_cents, notify_url): the same
- GET /v1/payments/{id}, /v1/payments?idempotency_key=, /v1/refunds/{id}, /v1/refunds?…: 200, 404
- GET /v1/book?after=&limit=: every entry, oldest first
- test mode only: POST and DELETE /admin/faults, PUT /admin/webhook-url, GET /admin/state

Every call but /healthz needs `Authorization: Bearer <key>`.
"""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qs

from sandbox_provider.book import Book, Conflict, Refused, now_ms
from sandbox_provider.courier import Courier
from sandbox_provider.faults import Fault, Faults

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Reply = tuple[int, dict[str, Any]]

MAX_BODY: Final = 65_536
# "Never answered": longer than any caller waits, short enough to end by itself.
NEVER_S: Final = 30.0


class BadRequest(Exception):
    """What the caller sent cannot be used."""


class Provider:
    """The application.

    Args:
        book: where it keeps what it did.
        api_key: what callers must send.
        webhook_secret: what webhooks are signed with.
        webhook_url: where webhooks go that name no address; empty for none.
        test_mode: allows faults and the admin endpoints.
    """

    def __init__(
        self,
        *,
        book: Book,
        api_key: str,
        webhook_secret: str,
        webhook_url: str = "",
        test_mode: bool = False,
    ) -> None:
        self._book = book
        self._key = api_key
        self._test_mode = test_mode
        self._faults = Faults()
        self._courier = Courier(
            book=book, faults=self._faults, secret=webhook_secret, url=webhook_url
        )
        self._running: asyncio.Task[None] | None = None
        # late_accept: requests that wait somewhere in the provider before anybody can see them.
        self._waiting: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        if self._running is None:
            self._running = asyncio.create_task(self._courier.run())
        status, document = await self._answer(scope, receive)
        body = json.dumps(document).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: dict[str, Any], receive: Receive) -> Reply:
        path = scope["path"].rstrip("/")
        if path == "/healthz":
            return 200, {"status": "ok"}
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        given = headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            return 401, {"error": "UNAUTHENTICATED"}
        query = {k: v[0] for k, v in parse_qs(scope["query_string"].decode()).items()}
        try:
            body = await _body(receive)
            parts = path.strip("/").split("/")
            if parts[0] == "admin" and self._test_mode:
                return self._admin(scope["method"], parts[1:], body)
            return await self._route(scope["method"], parts, query, headers, body)
        except BadRequest as error:
            return 400, {"error": "BAD_REQUEST", "detail": str(error)}
        except Refused as error:
            return 422, {"error": "REFUSED", "detail": str(error)}
        except Conflict:
            return 409, {"error": "IDEMPOTENCY_CONFLICT"}

    async def _route(
        self,
        method: str,
        parts: list[str],
        query: dict[str, str],
        headers: dict[str, str],
        body: dict[str, Any],
    ) -> Reply:
        match method, parts:
            case "POST", ["v1", "payments"]:
                return await self._write("create_payment", "payment", "", headers, body)
            case "POST", ["v1", "payments", payment_id, "refunds"]:
                return await self._write("refund", "refund", payment_id, headers, body)
            case "GET", ["v1", "payments" | "refunds" as what, *rest] if len(rest) < 2:
                return await self._read(what[:-1], rest, query, headers)
            case "GET", ["v1", "book"]:
                lines, following = self._book.page(
                    after=_number(query.get("after", "0")),
                    limit=min(1_000, max(1, _number(query.get("limit", "200")))),
                )
                return 200, {"lines": lines, "next": following}
            case _:
                return 404, {"error": "NO_SUCH_ADDRESS"}

    async def _write(
        self,
        operation: str,
        kind: str,
        payment_id: str,
        headers: dict[str, str],
        body: dict[str, Any],
    ) -> Reply:
        """Make a payment or refund; every fault of a write is played here."""
        key = headers.get("idempotency-key", "")
        if not 1 <= len(key) <= 64:
            raise BadRequest("Idempotency-Key: 1 to 64 characters")
        wish = _wish(kind, key, payment_id, body)
        reference = body.get("reference", "")
        if kind == "refund":
            reference = (self._book.get("payment", payment_id) or {}).get("reference", "")
        fault = self._strike(operation, reference, headers)
        name = fault.fault if fault else ""
        delay_s = fault.delay_ms / 1000 if fault else 0.0
        if name == "error_before":
            return 500, {"error": "INTERNAL"}
        if name == "late_accept":
            task = asyncio.create_task(self._accept_late(kind, wish, delay_s))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
            await asyncio.sleep(NEVER_S)
            return 504, {"error": "TIMEOUT"}
        if name == "slow":
            await asyncio.sleep(delay_s)
        if name == "pending":
            wish |= {"status": "PENDING", "due_ms": now_ms() + int(delay_s * 1000)}
        if name == "decline":
            wish["status"] = "FAILED"
        entry = self._do(kind, wish)
        if name == "timeout_after":
            await asyncio.sleep(NEVER_S)
            return 504, {"error": "TIMEOUT"}
        if name == "error_after":
            return 500, {"error": "INTERNAL"}
        if entry["status"] == "FAILED":
            return 402, entry | {"error": "DECLINED"}
        status = 202 if entry["status"] == "PENDING" else 201 if entry["new"] else 200
        return status, entry

    async def _accept_late(self, kind: str, wish: dict[str, Any], delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        self._do(kind, wish)

    def _do(self, kind: str, wish: dict[str, Any]) -> dict[str, Any]:
        entry = self._book.pay(**wish) if kind == "payment" else self._book.refund(**wish)
        if entry["new"]:
            self._courier.announce(kind, entry, wish["notify_url"])
        return entry

    async def _read(
        self, kind: str, rest: list[str], query: dict[str, str], headers: dict[str, str]
    ) -> Reply:
        if rest:
            entry = self._book.get(kind, rest[0])
        elif "idempotency_key" in query:
            entry = self._book.find(kind, query["idempotency_key"])
        else:
            raise BadRequest("give an id or idempotency_key")
        reference = entry["reference"] if entry else ""
        fault = self._strike(f"query_{kind}", reference, headers)
        if fault and fault.fault == "slow":
            await asyncio.sleep(fault.delay_ms / 1000)
        if fault and fault.fault == "error_before":
            return 500, {"error": "INTERNAL"}
        if entry is None or (fault and fault.fault == "not_found"):
            return 404, {"error": "NOT_FOUND"}
        return 200, entry

    def _strike(self, operation: str, reference: str, headers: dict[str, str]) -> Fault | None:
        if not self._test_mode:
            return None
        try:
            header = headers.get("x-sandbox-fault", "")
            return self._faults.strike(operation, reference=reference, header=header)
        except ValueError as error:
            raise BadRequest(str(error)) from error

    def _admin(self, method: str, parts: list[str], body: dict[str, Any]) -> Reply:
        match method, parts:
            case "POST", ["faults"]:
                try:
                    self._faults.arm(Fault(**body))
                except (TypeError, ValueError) as error:
                    raise BadRequest(str(error)) from error
                return 201, {}
            case "DELETE", ["faults"]:
                self._faults.clear()
                return 200, {}
            case "PUT", ["webhook-url"]:
                self._courier.url = str(body.get("url", ""))
                return 200, {}
            case "GET", ["state"]:
                return 200, {
                    "undelivered": self._book.undelivered(),
                    "waiting": len(self._waiting),
                }
            case _:
                return 404, {"error": "NO_SUCH_ADDRESS"}


def _wish(kind: str, key: str, payment_id: str, body: dict[str, Any]) -> dict[str, Any]:
    amount = body.get("amount_cents")
    if type(amount) is not int or amount < 1:
        raise BadRequest("amount_cents: a whole number, at least 1")
    notify_url = body.get("notify_url", "")
    if not isinstance(notify_url, str) or (
        notify_url and not notify_url.startswith(("http://", "https://"))
    ):
        raise BadRequest("notify_url: an http address")
    wish: dict[str, Any] = {"key": key, "amount_cents": amount, "notify_url": notify_url}
    if kind == "refund":
        return wish | {"payment_id": payment_id}
    currency, reference = body.get("currency"), body.get("reference")
    if not isinstance(currency, str) or len(currency) != 3:
        raise BadRequest("currency: three letters")
    if not isinstance(reference, str) or not 1 <= len(reference) <= 64:
        raise BadRequest("reference: 1 to 64 characters")
    return wish | {"currency": currency, "reference": reference}


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise BadRequest("a number, please")
    return int(text)


async def _body(receive: Receive) -> dict[str, Any]:
    content = b""
    while True:
        message = await receive()
        content += message.get("body", b"")
        if len(content) > MAX_BODY:
            raise BadRequest("too large")
        if not message.get("more_body"):
            break
    if not content:
        return {}
    try:
        document = json.loads(content)
    except ValueError:
        raise BadRequest("not JSON") from None
    if not isinstance(document, dict):
        raise BadRequest("not a JSON object")
    return document
