"""A payment provider inside the test: the real client's classification, no network, no time.

It keeps one entry for each idempotency key, can be told what to do with the next call, and holds
its webhooks until the test delivers them: late, twice, or before its own answer.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from django.db import connection

from orders.payments.sandbox import NAME, SIGNATURE_HEADER, TIMESTAMP_HEADER, SandboxProvider, sign
from orders.payments.webhooks import Receipt, receive_webhook

SECRET: Final = "secret-of-the-test"
# Fates of a write; those of a query are OK, ERROR and NOT_FOUND.
OK, DECLINE, PENDING, ERROR, TIMEOUT_AFTER, LATE = (
    "ok",
    "decline",
    "pending",
    "error",
    "done",
    "late",
)
NOT_FOUND: Final = "not_found"
_NO_ANSWER: Final = (0, b"ReadTimeoutError")


@dataclass
class Entry:
    """A payment or refund as the provider knows it."""

    id: str
    kind: str
    idempotency_key: str
    reference: str
    amount_cents: int
    currency: str
    payment_id: str
    status: str

    def json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "status": self.status,
            "amount_cents": self.amount_cents,
            "currency": self.currency,
            "idempotency_key": self.idempotency_key,
            "reference": self.reference,
        }


@dataclass
class Book:
    """What the provider did, is about to do, and has not told yet."""

    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    accepted_late: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    events: list[bytes] = field(default_factory=list)

    def net_cents(self, order_id: str) -> int:
        signs = {"payment": 1, "refund": -1}
        return sum(
            signs[entry.kind] * entry.amount_cents
            for entry in self.entries.values()
            if entry.reference == order_id and entry.status == "SUCCEEDED"
        )


class InProcessProvider(SandboxProvider):
    """`PaymentProvider` whose HTTP ends in this object."""

    def __init__(self) -> None:
        super().__init__(
            url="http://provider.invalid",
            api_key="key",
            webhook_secret=SECRET,
            deadline_ms=400,
            not_found_window_s=900,
            webhook_tolerance_s=300,
        )
        self.book_ = Book()
        self.next_write = OK
        self.next_query = OK
        self.webhook_first = False

    # -- what the test turns --------------------------------------------------------------------

    def calm_down(self) -> None:
        """No more faults; whatever it has not decided or accepted yet, it does now."""
        self.next_write = self.next_query = OK
        self.webhook_first = False
        while self.move_on(succeed=True):
            pass

    def move_on(self, *, place: int = 0, succeed: bool) -> bool:
        """Decide a pending payment, or accept what a time-out left somewhere; False: nothing is."""
        pending = [e for e in self.book_.entries.values() if e.status == "PENDING"]
        late = self.book_.accepted_late
        if not pending and not late:
            return False
        place %= len(pending) + len(late)
        if place < len(pending):
            pending[place].status = "SUCCEEDED" if succeed else "FAILED"
            self._announce(pending[place])
        else:
            kind, key, wish = late.pop(place - len(pending))
            if (kind, key) not in self.book_.entries:
                self._enter(kind, key, wish, "SUCCEEDED")
        return True

    def deliver_webhook(self, place: int, *, again: bool = False) -> Receipt | None:
        """Deliver one; `again` keeps it for another time."""
        events = self.book_.events
        if not events:
            return None
        place %= len(events)
        body = events[place] if again else events.pop(place)
        at = str(int(time.time()))
        headers = {
            TIMESTAMP_HEADER: at,
            SIGNATURE_HEADER: sign(secret=SECRET.encode(), timestamp=at, body=body),
        }
        return receive_webhook(provider=NAME, headers=headers, body=body)

    # -- its HTTP -------------------------------------------------------------------------------

    def _call(
        self,
        method: str,
        path: str,
        *,
        key: str = "",
        body: Mapping[str, Any] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        if connection.in_atomic_block:
            raise RuntimeError("no network call inside a transaction")
        fields = fields or {}
        if path == "/v1/book":
            lines = [{"kind": e.kind, "entry": e.json()} for e in self.book_.entries.values()]
            return 200, msgspec.json.encode({"lines": lines, "next": 0})
        kind = "refund" if path.endswith("/refunds") else "payment"
        if method == "GET":
            return self._query(kind, fields["idempotency_key"])
        wish = {"payment_id": path.split("/")[3] if kind == "refund" else "", **(body or {})}
        return self._write(kind, key, wish)

    def _query(self, kind: str, key: str) -> tuple[int, bytes]:
        fate, self.next_query = self.next_query, OK
        entry = self.book_.entries.get((kind, key))
        if fate == ERROR:
            return 500, b"{}"
        if entry is None or fate == NOT_FOUND:
            return 404, b"{}"
        return 200, msgspec.json.encode(entry.json())

    def _write(self, kind: str, key: str, wish: dict[str, Any]) -> tuple[int, bytes]:
        fate, self.next_write = self.next_write, OK
        if fate == ERROR:
            return 500, b"{}"
        entry = self.book_.entries.get((kind, key))
        if entry is None:
            if kind == "refund" and wish["amount_cents"] > self._refundable(wish["payment_id"]):
                return 422, b"{}"
            if fate == LATE:
                self.book_.accepted_late.append((kind, key, wish))
                return _NO_ANSWER
            status = {DECLINE: "FAILED", PENDING: "PENDING"}.get(fate, "SUCCEEDED")
            entry = self._enter(kind, key, wish, status)
            if self.webhook_first and self.book_.events:
                self.webhook_first = False
                self.deliver_webhook(len(self.book_.events) - 1)
        if fate == TIMEOUT_AFTER:
            return _NO_ANSWER
        status_code = {"FAILED": 402, "PENDING": 202}.get(entry.status, 200)
        return status_code, msgspec.json.encode(entry.json())

    def _refundable(self, payment_id: str) -> int:
        entries = self.book_.entries.values()
        captured = sum(
            e.amount_cents for e in entries if e.id == payment_id and e.status == "SUCCEEDED"
        )
        given = sum(
            e.amount_cents
            for e in entries
            if e.kind == "refund" and e.payment_id == payment_id and e.status != "FAILED"
        )
        return captured - given

    def _enter(self, kind: str, key: str, wish: dict[str, Any], status: str) -> Entry:
        entries = self.book_.entries
        of = next((e for e in entries.values() if e.id == wish["payment_id"]), None)
        entry = entries[kind, key] = Entry(
            id=f"{kind[:3]}_{len(entries)}",
            kind=kind,
            idempotency_key=key,
            reference=of.reference if of else wish["reference"],
            amount_cents=wish["amount_cents"],
            currency=of.currency if of else wish["currency"],
            payment_id=wish["payment_id"],
            status=status,
        )
        if status != "PENDING":
            self._announce(entry)
        return entry

    def _announce(self, entry: Entry) -> None:
        event = {
            "id": f"pev_{entry.id}",
            "type": f"{entry.kind}.{entry.status.lower()}",
            "data": entry.json(),
        }
        self.book_.events.append(msgspec.json.encode(event))
