"""Measures how many order transactions the database bears at a time.

On tables of its own, shaped like the real ones (inbox, orders, ledger, reservation, outbox, a hot
stock row), so that no sale is touched; everything goes to the WAL and to disk as in a sale.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from seckill.capacity.knee import Step

_SCHEMA = """
DROP SCHEMA IF EXISTS seckill_calibration CASCADE;
CREATE SCHEMA seckill_calibration;
SET search_path = seckill_calibration;
CREATE TABLE inbox (grp text, id text, body text, PRIMARY KEY (grp, id));
CREATE TABLE orders (id text PRIMARY KEY, reservation text UNIQUE, sku bigint, person text,
                     created_at timestamptz DEFAULT now(), body text, UNIQUE (sku, person));
CREATE TABLE ledger (id bigserial PRIMARY KEY, sku bigint, order_id text, units int);
CREATE TABLE outbox (id bigserial PRIMARY KEY, state int DEFAULT 0, body text);
CREATE INDEX ON outbox (id) WHERE state = 0;
CREATE TABLE stock (sku bigint PRIMARY KEY, available bigint);
"""

_DROP = "DROP SCHEMA IF EXISTS seckill_calibration CASCADE"
_STOCK = "INSERT INTO seckill_calibration.stock SELECT s, 1000000000 FROM generate_series(1, %s) s"

_STATEMENTS = (
    "INSERT INTO seckill_calibration.inbox"
    " SELECT 'orders', k, repeat('x', 200) FROM unnest(%s::text[]) k ON CONFLICT DO NOTHING",
    "INSERT INTO seckill_calibration.orders (id, reservation, sku, person, body)"
    " SELECT k, 'r' || k, %s, k, repeat('x', 150) FROM unnest(%s::text[]) k"
    " ON CONFLICT DO NOTHING",
    "INSERT INTO seckill_calibration.ledger (sku, order_id, units)"
    " SELECT %s, k, -1 FROM unnest(%s::text[]) k",
    "INSERT INTO seckill_calibration.outbox (body)"
    " SELECT repeat('x', 700) FROM unnest(%s::text[]) k, generate_series(1, 2)",
    "UPDATE seckill_calibration.stock SET available = available - %s"
    " WHERE sku = %s AND available >= %s",
)


@dataclass
class _Tally:
    seconds: list[float] = field(default_factory=list)
    retries: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, seconds: list[float], retries: int) -> None:
        with self.lock:
            self.seconds += seconds
            self.retries += retries


class Calibration:
    """A run. Use it as a context manager: its schema never outlives the block.

    Args:
        dsn: connection string of the database.
        batch: orders in one transaction.
        skus: hot stock rows; the fewer, the more one transaction waits for another.
    """

    def __init__(self, dsn: str, *, batch: int, skus: int) -> None:
        self._dsn = dsn
        self._batch = batch
        self._skus = skus

    def __enter__(self) -> "Calibration":
        """Make the schema."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(_SCHEMA)
            connection.execute(_STOCK, [self._skus])
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Drop it."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(_DROP)

    def measure(self, concurrency: int, *, seconds: float) -> Step:
        """Run so many transactions at a time for so long.

        Raises:
            psycopg.OperationalError: the database gives no more connections.
        """
        connections = [psycopg.connect(self._dsn) for _ in range(concurrency)]
        tally = _Tally()
        failed: list[Exception] = []
        barrier = threading.Barrier(concurrency + 1)

        def work(number: int) -> None:
            try:
                barrier.wait(30)
                tally.add(*self._work(connections[number], number, concurrency, seconds))
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(concurrency)]
        for thread in threads:
            thread.start()
        barrier.wait(30)
        began = time.monotonic()
        for thread in threads:
            thread.join()
        span = time.monotonic() - began
        for connection in connections:
            connection.close()
        if failed:
            raise failed[0]
        ordered = sorted(tally.seconds)
        done = len(ordered)
        return Step(
            concurrency=concurrency,
            transactions_per_s=done / span,
            orders_per_s=done * self._batch / span,
            p50_ms=_percentile(ordered, 0.5),
            p95_ms=_percentile(ordered, 0.95),
            p99_ms=_percentile(ordered, 0.99),
            retries=tally.retries,
        )

    def _work(
        self, connection: psycopg.Connection, number: int, concurrency: int, seconds: float
    ) -> tuple[list[float], int]:
        times: list[float] = []
        retries = 0
        end = time.monotonic() + seconds
        turn = 0
        while time.monotonic() < end:
            turn += 1
            keys = [f"{concurrency}-{number}-{turn}-{row}" for row in range(self._batch)]
            sku = 1 + (number + turn) % self._skus
            began = time.monotonic()
            try:
                self._transaction(connection, keys, sku)
            except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
                connection.rollback()
                retries += 1
                continue
            times.append(time.monotonic() - began)
        return times, retries

    def _transaction(self, connection: psycopg.Connection, keys: list[str], sku: int) -> None:
        inbox, orders, ledger, outbox, stock = _STATEMENTS
        count = len(keys)
        with connection.cursor() as cursor:
            cursor.execute(inbox, [keys])
            cursor.execute(orders, [sku, keys])
            cursor.execute(ledger, [sku, keys])
            cursor.execute(outbox, [keys])
            cursor.execute(stock, [count, sku, count])
        connection.commit()


def climb(
    calibration: Calibration,
    *,
    steps: list[int],
    seconds: float,
    tell: Callable[[Step], None],
    over: Callable[[list[Step]], bool],
) -> list[Step]:
    """Measure one concurrency after the other until it is pointless to go on.

    Args:
        calibration: entered.
        steps: concurrencies, rising.
        seconds: of each step.
        tell: called after each step.
        over: asked after each step.

    Returns:
        What was measured; a database that gives no more connections ends the climb, too.
    """
    measured: list[Step] = []
    for concurrency in steps:
        try:
            step = calibration.measure(concurrency, seconds=seconds)
        except psycopg.OperationalError:
            if not measured:
                raise
            break
        measured.append(step)
        tell(step)
        if over(measured):
            break
    return measured


def _percentile(ordered: list[float], share: float) -> float:
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000
