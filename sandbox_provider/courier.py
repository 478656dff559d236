"""Webhooks: signed with HMAC-SHA256 over timestamp, dot and body; tried until answered with 2xx."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import secrets
import time
from typing import Any, Final

import urllib3

from sandbox_provider.book import Book, now_ms
from sandbox_provider.faults import Fault, Faults

TICK_S: Final = 0.05
AT_ONCE: Final = 16
TIMEOUT_S: Final = 5.0
STALE_S: Final = 86_400


class Courier:
    """Captures what was pending, announces changes, and delivers the announcements."""

    def __init__(self, *, book: Book, faults: Faults, secret: str, url: str) -> None:
        self.url = url  # where webhooks go that name no address of their own
        self._book = book
        self._faults = faults
        self._secret = secret.encode()
        self._http = urllib3.PoolManager(num_pools=8, maxsize=AT_ONCE, retries=False)
        self._held: list[tuple[str, str]] = []
        self._tricks: dict[int, str] = {}

    def announce(self, kind: str, entry: dict[str, Any], notify_url: str) -> None:
        """Queue the webhook of a settled payment or refund; faults of it are decided here."""
        url = notify_url or self.url
        if not url or entry["status"] == "PENDING":
            return
        event = {
            "id": f"pev_{secrets.token_hex(12)}",
            "type": f"{kind}.{entry['status'].lower()}",
            "created_ms": now_ms(),
            "data": {name: value for name, value in entry.items() if name not in _PRIVATE},
        }
        body = json.dumps(event, separators=(",", ":"))
        fault = self._faults.strike("webhook", reference=entry["reference"])
        self._queue(url, body, fault)

    def _queue(self, url: str, body: str, fault: Fault | None) -> None:
        name = fault.fault if fault else ""
        if name == "drop":
            return
        if name == "hold":
            self._held.append((url, body))
            return
        delay_ms = fault.delay_ms if fault and name == "late" else 0
        for _ in range(2 if name == "duplicate" else 1):
            seq = self._book.announce(url=url, body=body, due_ms=now_ms() + delay_ms)
            if name in ("forge", "stale"):
                self._tricks[seq] = name
        held, self._held = self._held, []
        for held_url, held_body in held:
            # Later than the one that overtakes it, whatever the deliveries' own speed.
            self._book.announce(url=held_url, body=held_body, due_ms=now_ms() + 300)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            for entry in self._book.settle_due():
                self.announce(entry["kind"], entry, entry["notify_url"])
            due = self._book.due_deliveries(AT_ONCE)
            results = await asyncio.gather(
                *(
                    asyncio.to_thread(self._deliver, row["seq"], row["url"], row["body"])
                    for row in due
                )
            )
            for row, taken in zip(due, results, strict=True):
                if taken:
                    self._book.delivered(row["seq"])
                else:
                    self._book.failed(row["seq"], row["tries"])
            if len(due) < AT_ONCE:
                await asyncio.sleep(TICK_S)

    def _deliver(self, seq: int, url: str, body: str) -> bool:
        trick = self._tricks.pop(seq, "")
        timestamp = str(int(time.time()) - (STALE_S if trick == "stale" else 0))
        secret = b"somebody else's" if trick == "forge" else self._secret
        digest = hmac.new(secret, f"{timestamp}.{body}".encode(), hashlib.sha256).hexdigest()
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            answer = self._http.request(
                "POST",
                url,
                body=body.encode(),
                headers={
                    "Content-Type": "application/json",
                    "X-Sandbox-Timestamp": timestamp,
                    "X-Sandbox-Signature": f"v1={digest}",
                },
                timeout=TIMEOUT_S,
                redirect=False,
            )
            return 200 <= answer.status < 300
        return False


_PRIVATE: Final = frozenset({"kind", "notify_url", "new"})
