"""How fast this machine is today: echo, batch send, one-row commits. Nothing else may work."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg

from bench.generator import Generator
from bench.loadgen.plan import Plan
from seckill.demo.processes import free_port, wait_http
from seckill.demo.supervision import Program, Supervisor

_SECONDS: Final = 3.0
_BATCH: Final = 64


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Rates per second of the three cheapest things."""

    echo_per_s: float
    send_per_s: float
    commits_per_s: float


def calibrate(*, folder: Path, environment: Mapping[str, str], connections: int) -> Calibration:
    """Measure all three, one after the other, about 3 s each."""
    return Calibration(
        echo_per_s=echo(folder=folder, environment=environment, connections=connections),
        send_per_s=batch_send(),
        commits_per_s=commits(environment["DATABASE_URL"]),
    )


def echo(*, folder: Path, environment: Mapping[str, str], connections: int) -> float:
    """Return requests per second of an ASGI application that does nothing, two workers."""
    port = free_port(18_900)
    program = Program(
        name="echo",
        argv=(
            *(sys.executable, "-m", "granian", "--interface", "asgi", "--loop", "uvloop"),
            *("--no-ws", "--workers", "2", "--log-level", "warning", "--port", str(port)),
            "bench.echo:application",
        ),
    )
    plan = Plan(
        port=port,
        path="/",
        connections=connections,
        seconds=_SECONDS,
        warm_up_s=0.5,
        users=5_000,
        cycle=True,
    )
    place = folder / "echo"
    place.mkdir(exist_ok=True)
    with Supervisor(folder=place, environment=environment) as supervisor:
        supervisor.start([program])
        wait_http(f"http://127.0.0.1:{port}/", timeout_s=20)
        with Generator(plan, folder=place, environment=environment, name="echo") as load:
            load.wait_ready()
            load.go()
            return float(load.result(timeout_s=30)["rate_per_s"])


def batch_send() -> float:
    """Return messages per second of one producer that sends batches, one after the other."""
    from ulid import ULID

    from messaging.broker import broker
    from messaging.broker.base import OutgoingMessage, SendOutcome
    from messaging.topology import ORDER_EVENT

    producer = broker().producer()
    body = b"x" * 512

    def send() -> int:
        batch = []
        for _ in range(_BATCH):
            name = f"evt_{ULID()}"
            batch.append(
                OutgoingMessage(
                    topic=ORDER_EVENT, message_id=name, body=body, tag="ORDER_PAID", keys=(name,)
                )
            )
        result = producer.send(batch, timeout_ms=3_000)
        return _BATCH if result.outcome is SendOutcome.CONFIRMED else 0

    try:
        for _ in range(20):
            send()
        sent, began = 0, time.perf_counter()
        while (span := time.perf_counter() - began) < _SECONDS:
            sent += send()
        return sent / span
    finally:
        producer.close()


def commits(database_url: str) -> float:
    """Return commits per second of one connection that inserts single rows."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS bench_commit (id bigserial PRIMARY KEY, t text)"
        )
        done, began = 0, time.perf_counter()
        while (span := time.perf_counter() - began) < _SECONDS:
            connection.execute("INSERT INTO bench_commit (t) VALUES ('x')")
            done += 1
        connection.execute("DROP TABLE bench_commit")
        return done / span
