"""What buyers do with their orders: pay, cancel, or let the time run out. Over the API, as they do.

Each order's number decides, so that a run can be checked against what was wanted.
"""

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Any, Final, Self

import urllib3
from django.db import connection

from bench.loadgen.histogram import Histogram
from bench.loadgen.tokens import buyer_tokens
from seckill.demo.sale import Sale

PAYS: Final = 0.6
CANCELS: Final = 0.2
_AT_ONCE: Final = 8
_LOOK_EVERY_S: Final = 0.5
_OVERLAP: Final = 20_000  # orders seen lately: they commit out of order
_NEW = """
SELECT order_id, user_id FROM orders_order
WHERE order_id > %s AND activity_id = %s AND status = 'CREATED'
ORDER BY order_id
"""


class Intent(StrEnum):
    """What a buyer does with an order."""

    PAY = "payments"  # the last part of the path he posts to
    CANCEL = "cancel"
    FORGET = ""


def intent(order_id: str) -> Intent:
    """Return what the buyer of this order does; the same every time."""
    digest = hashlib.blake2b(order_id.encode(), digest_size=4).digest()
    place = int.from_bytes(digest, "big") / 2**32
    if place < PAYS:
        return Intent.PAY
    return Intent.CANCEL if place < PAYS + CANCELS else Intent.FORGET


class Window:
    """The newest orders that were seen: which of a new look are new, and where to look from."""

    def __init__(self, size: int = _OVERLAP) -> None:
        self._size = size
        self._seen: dict[str, None] = {}  # in the order in which they were seen

    @property
    def floor(self) -> str:
        """The order id after which the next look begins: '' while all may be seen again."""
        return min(self._seen) if len(self._seen) >= self._size else ""

    def new(self, order_ids: list[str]) -> set[str]:
        """Return those never seen; forget the oldest beyond the window's size."""
        found = set(order_ids) - self._seen.keys()
        self._seen.update(dict.fromkeys(sorted(found)))
        for order_id in sorted(self._seen)[: max(0, len(self._seen) - self._size)]:
            del self._seen[order_id]
        return found


class Buyers:
    """Act on the orders of a sale while the block runs.

    Args:
        sale: whose orders.
        port: of the web server.
        environment: with what signs the buyers' tokens.
    """

    def __init__(self, sale: Sale, *, port: int, environment: Mapping[str, str]) -> None:
        self._sale = sale
        self._base = f"http://127.0.0.1:{port}/api/v1/orders"
        self._signs: dict[str, Any] = {
            "secret": environment["SECKILL_JWT_SECRET"],
            "issuer": environment.get("SECKILL_JWT_ISSUER", ""),
            "audience": environment.get("SECKILL_JWT_AUDIENCE", ""),
        }
        self._http = urllib3.PoolManager(maxsize=_AT_ONCE, retries=False, timeout=10.0)
        self._calls = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="buyers")
        self._window = Window()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.latency = {kind: Histogram() for kind in (Intent.PAY, Intent.CANCEL)}
        self.codes: dict[Intent, Counter[str]] = {kind: Counter() for kind in self.latency}

    def __enter__(self) -> Self:
        """Begin to look for orders."""
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Look once more, end what was begun."""
        self._stop.set()
        self._thread.join(60)
        self._calls.shutdown()
        self._http.clear()

    @property
    def failed(self) -> int:
        """Calls that were not answered as they should be."""
        return sum(
            count
            for codes in self.codes.values()
            for code, count in codes.items()
            if code not in ("200", "202")
        )

    def _look(self) -> None:
        try:
            while not self._stop.wait(_LOOK_EVERY_S):
                self._act_on_new()
            self._act_on_new()
        finally:
            connection.close()

    def _act_on_new(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_NEW, [self._window.floor, self._sale.activity_id])
            orders = dict(cursor.fetchall())
        for order_id in self._window.new(list(orders)):
            wanted = intent(order_id)
            if wanted is not Intent.FORGET:
                self._calls.submit(self._call, wanted, order_id, orders[order_id])

    def _call(self, wanted: Intent, order_id: str, user_id: str) -> None:
        (token,) = buyer_tokens([user_id], **self._signs)
        began = time.perf_counter()
        try:
            answer = self._http.request(
                "POST",
                f"{self._base}/{order_id}/{wanted.value}",
                headers={"authorization": f"Bearer {token}"},
            )
            code = str(answer.status)
        except urllib3.exceptions.HTTPError as error:
            code = type(error).__name__
        with self._lock:
            self.latency[wanted].add(int((time.perf_counter() - began) * 1e6))
            self.codes[wanted][code] += 1
