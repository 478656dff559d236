"""The provider's book: payments, refunds and webhooks to deliver, in one SQLite file.

A key names one payment (or refund) for ever: the same key with the same request answers with what
is there, with another request it is a conflict. Times are epoch milliseconds.
"""

import json
import secrets
import sqlite3
import time
from pathlib import Path
from typing import Any, Final

_SCHEMA: Final = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS entry (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL CHECK (kind IN ('payment', 'refund')),
    id TEXT NOT NULL UNIQUE,
    idempotency_key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    payment_id TEXT NOT NULL,
    reference TEXT NOT NULL,
    amount_cents INTEGER NOT NULL CHECK (amount_cents > 0),
    currency TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('PENDING', 'SUCCEEDED', 'FAILED')),
    notify_url TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    due_ms INTEGER,
    UNIQUE (kind, idempotency_key)
);
CREATE INDEX IF NOT EXISTS entry_due ON entry (due_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX IF NOT EXISTS entry_payment ON entry (payment_id);
CREATE TABLE IF NOT EXISTS delivery (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    url TEXT NOT NULL,
    body TEXT NOT NULL,
    due_ms INTEGER NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    done_ms INTEGER
);
CREATE INDEX IF NOT EXISTS delivery_due ON delivery (due_ms) WHERE done_ms IS NULL;
"""
_PUBLIC: Final = (
    "id",
    "status",
    "amount_cents",
    "currency",
    "idempotency_key",
    "reference",
    "payment_id",
)
MAX_TRIES: Final = 20


class Conflict(Exception):
    """The key names another request."""


class Refused(Exception):
    """The request can never succeed: nothing was done."""


def now_ms() -> int:
    """Return the time of the book."""
    return time.time_ns() // 1_000_000


class Book:
    """The file and everything that changes it. Used from one thread."""

    def __init__(self, path: Path | str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def pay(
        self,
        *,
        key: str,
        reference: str,
        amount_cents: int,
        currency: str,
        notify_url: str,
        status: str = "SUCCEEDED",
        due_ms: int | None = None,
    ) -> dict[str, Any]:
        """Record a payment, or return the one that the key names.

        Args:
            key: the caller's idempotency key.
            reference: the caller's order.
            amount_cents: at least 1.
            currency: three letters.
            notify_url: where its webhooks go, may be empty.
            status: SUCCEEDED, FAILED, or PENDING until `due_ms`.
            due_ms: when a PENDING one is captured.

        Raises:
            Conflict: the key was used for another request.
        """
        return self._add(
            kind="payment",
            key=key,
            fingerprint=json.dumps([reference, amount_cents, currency]),
            payment_id="",
            reference=reference,
            amount_cents=amount_cents,
            currency=currency,
            status=status,
            notify_url=notify_url,
            due_ms=due_ms,
        )

    def refund(
        self,
        *,
        key: str,
        payment_id: str,
        amount_cents: int,
        notify_url: str,
        status: str = "SUCCEEDED",
        due_ms: int | None = None,
    ) -> dict[str, Any]:
        """Record a refund, or return the one that the key names.

        Raises:
            Conflict: the key was used for another request.
            Refused: no captured payment, or more than is left of it.
        """
        payment = self.get("payment", payment_id)
        if payment is None or payment["status"] != "SUCCEEDED":
            raise Refused("no captured payment of this id")
        (given,) = self._db.execute(
            "SELECT coalesce(sum(amount_cents), 0) FROM entry WHERE kind = 'refund'"
            " AND payment_id = ? AND status <> 'FAILED' AND idempotency_key <> ?",
            (payment_id, key),
        ).fetchone()
        if given + amount_cents > payment["amount_cents"]:
            raise Refused("more than is left of the payment")
        return self._add(
            kind="refund",
            key=key,
            fingerprint=json.dumps([payment_id, amount_cents]),
            payment_id=payment_id,
            reference=payment["reference"],
            amount_cents=amount_cents,
            currency=payment["currency"],
            status=status,
            notify_url=notify_url,
            due_ms=due_ms,
        )

    def get(self, kind: str, entry_id: str) -> dict[str, Any] | None:
        """Return a payment or refund by the provider's id."""
        return self._one("kind = ? AND id = ?", (kind, entry_id))

    def find(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return a payment or refund by idempotency key."""
        return self._one("kind = ? AND idempotency_key = ?", (kind, key))

    def page(self, *, after: int, limit: int) -> tuple[list[dict[str, Any]], int]:
        """Return entries in the order of their making, and the next cursor (0 after the last)."""
        rows = self._db.execute(
            "SELECT * FROM entry WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit)
        ).fetchall()
        lines = [{"kind": row["kind"], "entry": _document(row)} for row in rows]
        return lines, rows[-1]["seq"] if len(rows) == limit else 0

    def settle_due(self) -> list[dict[str, Any]]:
        """Capture what was PENDING until now; return what changed, with its notify_url."""
        rows = self._db.execute(
            "UPDATE entry SET status = 'SUCCEEDED', due_ms = NULL WHERE due_ms <= ? RETURNING *",
            (now_ms(),),
        ).fetchall()
        return [
            _document(row) | {"kind": row["kind"], "notify_url": row["notify_url"]} for row in rows
        ]

    def announce(self, *, url: str, body: str, due_ms: int) -> int:
        """Queue a webhook; returns its number."""
        done = self._db.execute(
            "INSERT INTO delivery (url, body, due_ms) VALUES (?, ?, ?)", (url, body, due_ms)
        )
        return int(done.lastrowid or 0)

    def due_deliveries(self, limit: int) -> list[sqlite3.Row]:
        """Return webhooks to deliver now, oldest due first."""
        return self._db.execute(
            "SELECT seq, url, body, tries FROM delivery"
            " WHERE done_ms IS NULL AND due_ms <= ? ORDER BY due_ms, seq LIMIT ?",
            (now_ms(), limit),
        ).fetchall()

    def delivered(self, seq: int) -> None:
        """A webhook was answered with 2xx."""
        self._db.execute("UPDATE delivery SET done_ms = ? WHERE seq = ?", (now_ms(), seq))

    def failed(self, seq: int, tries: int) -> None:
        """A webhook was not taken: again after 1, 2, 4 … 300 s, given up after 20 tries."""
        wait_ms = min(300, 2**tries) * 1000
        self._db.execute(
            "UPDATE delivery SET tries = ?, due_ms = ?, done_ms = CASE WHEN ? THEN ? END"
            " WHERE seq = ?",
            (tries + 1, now_ms() + wait_ms, tries + 1 >= MAX_TRIES, now_ms(), seq),
        )

    def undelivered(self) -> int:
        """Return how many webhooks wait."""
        (count,) = self._db.execute(
            "SELECT count(*) FROM delivery WHERE done_ms IS NULL"
        ).fetchone()
        return int(count)

    def _one(self, where: str, values: tuple[str, ...]) -> dict[str, Any] | None:
        row = self._db.execute(f"SELECT * FROM entry WHERE {where}", values).fetchone()  # noqa: S608
        return _document(row) if row else None

    def _add(self, *, kind: str, key: str, fingerprint: str, **values: Any) -> dict[str, Any]:
        """Insert unless the key is known; `new` in the answer tells which it was."""
        prefix = "pay_s" if kind == "payment" else "ref_s"
        entry_id = f"{prefix}{secrets.token_hex(12)}"
        row = {
            "kind": kind,
            "id": entry_id,
            "idempotency_key": key,
            "fingerprint": fingerprint,
            "created_ms": now_ms(),
            **values,
        }
        row["payment_id"] = row["payment_id"] or entry_id
        names = ", ".join(row)
        marks = ", ".join(f":{name}" for name in row)
        done = self._db.execute(
            f"INSERT INTO entry ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING",  # noqa: S608
            row,
        )
        stored = self._db.execute(
            "SELECT * FROM entry WHERE kind = ? AND idempotency_key = ?", (kind, key)
        ).fetchone()
        if stored["fingerprint"] != fingerprint:
            raise Conflict(key)
        return _document(stored) | {"new": done.rowcount == 1}


def _document(row: sqlite3.Row) -> dict[str, Any]:
    return {name: row[name] for name in _PUBLIC}
