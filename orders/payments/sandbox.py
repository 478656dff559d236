"""The sandbox provider's client: one attempt a call, a deadline, and a closed set of outcomes.

Source: sandbox_provider/ (its HTTP interface). A client of a real provider looks the same: a class
with the methods of `PaymentProvider`, and a function like `configured`.
"""

import functools
import hashlib
import hmac
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog
import urllib3
from django.conf import settings
from django.db import connection

from orders.payments.port import (
    Answer,
    BookEntry,
    EventKind,
    Outcome,
    ProviderEvent,
    ProviderState,
    ProviderUnavailable,
    WebhookRefused,
)

log = structlog.get_logger(__name__)

NAME: Final = "sandbox"
SIGNATURE_HEADER: Final = "x-sandbox-signature"
TIMESTAMP_HEADER: Final = "x-sandbox-timestamp"
MAX_BODY: Final = 1_048_576

_KINDS: Final = {
    "payment.succeeded": EventKind.PAYMENT_SUCCEEDED,
    "payment.failed": EventKind.PAYMENT_FAILED,
    "refund.succeeded": EventKind.REFUND_SUCCEEDED,
    "refund.failed": EventKind.REFUND_FAILED,
}
# Refusals after which nothing exists at the provider. 401, 403, 409, 429 are not among them: the
# same key sent again may well succeed, or the key is in use, which only a query can explain.
_DEFINITE: Final = {400: "BAD_REQUEST", 402: "DECLINED", 422: "REFUSED"}


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    """A payment or refund as the provider tells it."""

    id: str
    status: ProviderState
    amount_cents: int
    currency: str
    idempotency_key: str
    reference: str = ""


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    entry: _Document


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    lines: list[_Line]
    next: int


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: str
    data: _Document


def configured() -> "SandboxProvider":
    """Return the client that the settings describe, with its connections.

    Raises:
        ProviderUnavailable: PAYMENT_PROVIDER_URL is empty.
    """
    if not settings.PAYMENT_PROVIDER_URL:
        raise ProviderUnavailable("PAYMENT_PROVIDER_URL is empty: nobody can pay")
    return _client(
        settings.PAYMENT_PROVIDER_URL,
        settings.PAYMENT_PROVIDER_KEY,
        settings.SECKILL_WEBHOOK_SECRET,
        settings.SECKILL_PAYMENT_DEADLINE_MS,
        settings.SECKILL_PAYMENT_NOT_FOUND_WINDOW_S,
        settings.SECKILL_WEBHOOK_TOLERANCE_S,
        settings.PAYMENT_NOTIFY_URL,
    )


@functools.lru_cache(maxsize=8)
def _client(
    url: str, key: str, secret: str, deadline_ms: int, window_s: int, tolerance_s: int, notify: str
) -> "SandboxProvider":
    return SandboxProvider(
        url=url,
        api_key=key,
        webhook_secret=secret,
        deadline_ms=deadline_ms,
        not_found_window_s=window_s,
        webhook_tolerance_s=tolerance_s,
        notify_url=notify,
    )


class SandboxProvider:
    """Calls the sandbox provider over HTTP.

    Args:
        url: its address, without a path.
        api_key: our key, sent as a bearer token.
        webhook_secret: signs its webhooks.
        deadline_ms: of one call, connect included.
        not_found_window_s: how long NOT_FOUND says nothing.
        webhook_tolerance_s: how old (or early) a webhook's timestamp may be.
        notify_url: where its webhooks shall go; empty leaves that to its own configuration.
    """

    name: Final = NAME

    def __init__(
        self,
        *,
        url: str,
        api_key: str,
        webhook_secret: str,
        deadline_ms: int,
        not_found_window_s: int,
        webhook_tolerance_s: int,
        notify_url: str = "",
    ) -> None:
        self.not_found_window_s = not_found_window_s
        self._url = url.rstrip("/")
        self._secret = webhook_secret.encode()
        self._tolerance_s = webhook_tolerance_s
        self._notify_url = notify_url
        self._headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
        self._timeout = urllib3.Timeout(
            connect=min(1.0, deadline_ms / 1000), total=deadline_ms / 1000
        )
        # A pool is shared by threads, not by forks: made on first use.
        self._pool: urllib3.PoolManager | None = None
        self._lock = threading.Lock()

    def create_payment(
        self, *, key: str, reference: str, amount_cents: int, currency: str
    ) -> Answer:
        """Authorise and capture; see `PaymentProvider`."""
        body = {"amount_cents": amount_cents, "currency": currency, "reference": reference}
        if self._notify_url:
            body["notify_url"] = self._notify_url
        return self._ask("POST", "/v1/payments", key=key, body=body)

    def query_payment(self, *, key: str) -> Answer:
        """Ask what became of a payment."""
        return self._ask("GET", "/v1/payments", fields={"idempotency_key": key})

    def refund(self, *, key: str, provider_payment_id: str, amount_cents: int) -> Answer:
        """Give captured money back."""
        body: dict[str, Any] = {"amount_cents": amount_cents}
        if self._notify_url:
            body["notify_url"] = self._notify_url
        return self._ask("POST", f"/v1/payments/{provider_payment_id}/refunds", key=key, body=body)

    def query_refund(self, *, key: str) -> Answer:
        """Ask what became of a refund."""
        return self._ask("GET", "/v1/refunds", fields={"idempotency_key": key})

    def book(self, *, after: int, limit: int) -> tuple[Sequence[BookEntry], int]:
        """Return a page of the provider's book and the next cursor."""
        status, body = self._call(
            "GET", "/v1/book", fields={"after": str(after), "limit": str(limit)}
        )
        if status != 200:
            raise ProviderUnavailable(f"HTTP {status}")
        try:
            page = msgspec.json.decode(body, type=_Page)
        except msgspec.DecodeError as error:
            raise ProviderUnavailable("the book is unreadable") from error
        entries = [
            BookEntry(
                is_refund=line.kind == "refund",
                key=line.entry.idempotency_key,
                provider_id=line.entry.id,
                reference=line.entry.reference,
                state=line.entry.status,
                amount_cents=line.entry.amount_cents,
                currency=line.entry.currency,
            )
            for line in page.lines
        ]
        return entries, page.next

    def read_webhook(
        self, *, headers: Mapping[str, str], body: bytes, now_s: float
    ) -> ProviderEvent:
        """Check signature and age of a webhook and read it."""
        timestamp = headers.get(TIMESTAMP_HEADER, "")
        given = headers.get(SIGNATURE_HEADER, "")
        if not self._secret:
            raise WebhookRefused("NO_SECRET")
        expected = sign(secret=self._secret, timestamp=timestamp, body=body)
        if not hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace")):
            raise WebhookRefused("BAD_SIGNATURE")
        # Only what was signed is looked at: the timestamp is part of it.
        if not timestamp.isascii() or not timestamp.isdigit():
            raise WebhookRefused("BAD_TIMESTAMP")
        if abs(now_s - int(timestamp)) > self._tolerance_s:
            raise WebhookRefused("OUTSIDE_TIME_WINDOW")
        return self.read_event(body)

    def read_event(self, body: bytes) -> ProviderEvent:
        """Read the body of a webhook that was checked before."""
        try:
            event = msgspec.json.decode(body, type=_Event)
        except msgspec.DecodeError as error:
            raise WebhookRefused("UNREADABLE") from error
        if not 1 <= len(event.id) <= 64 or len(event.data.idempotency_key) > 64:
            raise WebhookRefused("UNREADABLE")
        return ProviderEvent(
            event_id=event.id,
            kind=_KINDS.get(event.type, EventKind.OTHER),
            key=event.data.idempotency_key,
            provider_id=event.data.id,
            amount_cents=event.data.amount_cents,
            currency=event.data.currency,
        )

    def _ask(
        self,
        method: str,
        path: str,
        *,
        key: str = "",
        body: Mapping[str, Any] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Answer:
        """Make one call about one payment or refund and classify what came back."""
        status, content = self._call(method, path, key=key, body=body, fields=fields)
        if status in (200, 201, 202):
            try:
                found = msgspec.json.decode(content, type=_Document)
            except msgspec.DecodeError:
                return Answer(outcome=Outcome.UNKNOWN, error_class="UNREADABLE")
            return Answer(
                outcome=Outcome.OK,
                state=found.status,
                provider_id=found.id,
                amount_cents=found.amount_cents,
                currency=found.currency,
                error_class="DECLINED" if found.status is ProviderState.FAILED else "",
            )
        if method == "GET" and status == 404:
            return Answer(outcome=Outcome.NOT_FOUND, error_class="NOT_FOUND")
        if method == "POST" and status in _DEFINITE:
            return Answer(outcome=Outcome.DEFINITE, error_class=_DEFINITE[status])
        return Answer(
            outcome=Outcome.UNKNOWN, error_class=f"HTTP_{status}" if status else content.decode()
        )

    def _call(
        self,
        method: str,
        path: str,
        *,
        key: str = "",
        body: Mapping[str, Any] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Make one HTTP call. Returns (0, error class) when no answer came in time."""
        if connection.in_atomic_block:
            raise RuntimeError("no network call inside a transaction: its locks would wait for it")
        headers = self._headers | ({"Idempotency-Key": key} if key else {})
        try:
            response = self._connections().request(
                method,
                self._url + path,
                fields=fields,
                body=None if body is None else msgspec.json.encode(body),
                headers=headers,
                timeout=self._timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                content = response.read(MAX_BODY + 1)
            finally:
                response.release_conn()
        except urllib3.exceptions.HTTPError as error:
            log.warning("provider_unclear", provider=NAME, call=path, error=type(error).__name__)
            return 0, type(error).__name__.encode()
        if len(content) > MAX_BODY:
            return 0, b"TOO_LARGE"
        return response.status, content

    def _connections(self) -> urllib3.PoolManager:
        with self._lock:
            if self._pool is None:
                self._pool = urllib3.PoolManager(num_pools=1, maxsize=8)
            return self._pool


def sign(*, secret: bytes, timestamp: str, body: bytes) -> str:
    """Return the signature of a webhook: HMAC-SHA256 over timestamp, a dot, and the raw body."""
    message = timestamp.encode("utf-8", "replace") + b"." + body
    return "v1=" + hmac.new(secret, message, hashlib.sha256).hexdigest()
