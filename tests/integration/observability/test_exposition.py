"""Metrics of several web processes behind one port, and readiness that waits for warmth."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import transaction
from prometheus_client import REGISTRY
from ulid import ULID

from dlq_admin.audit import metrics
from dlq_admin.tasks import verify_audit
from messaging import inbox, partitions, sender
from messaging.inbox import InboxEntry
from messaging.pulse import Pulse
from messaging.topology import CG_ORDER_CREATE
from seckill import warmth
from seckill.observability import multiprocess
from tests.fixtures.loops import OneTurn
from tests.fixtures.sales import Sale
from tests.fixtures.web import ScriptedProducer, StartWeb, eventually

WRITE = """
import sys
from prometheus_client import Counter, Gauge
Counter("seen_total", "x").inc(2)
Gauge("queued", "x", multiprocess_mode="livesum").set(5)
if sys.argv[1] == "stay":
    print("ready", flush=True); sys.stdin.read()
"""
READ = """
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from seckill.observability.multiprocess import forget_dead
forget_dead()
registry = CollectorRegistry(); MultiProcessCollector(registry)
print(generate_latest(registry).decode())
"""


def test_counters_of_the_dead_stay_and_their_gauges_go(tmp_path: Path) -> None:
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}

    def run(script: str, *arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", script, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    run(WRITE, "leave")
    living = subprocess.Popen(
        [sys.executable, "-c", WRITE, "stay"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert living.stdout is not None
        assert living.stdout.readline() == b"ready\n"
        text = run(READ)
    finally:
        living.communicate()

    assert re.search(r"^seen_total 4\.0$", text, re.MULTILINE)
    assert re.search(r"^queued 5\.0$", text, re.MULTILINE)


def test_a_single_process_has_nothing_to_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    multiprocess.forget_dead()


class ColdProducer(ScriptedProducer):
    """A broker that answers at the third try."""

    tries = 0

    async def warm_up(self) -> bool:
        self.tries += 1
        return self.tries >= 3


async def test_readiness_waits_for_warmth_and_health_does_not(
    start_web: StartWeb, sale: Sale, provisioned: str
) -> None:
    producer = ColdProducer()
    web = await start_web(producer=producer)

    cold = await web.request("GET", "/readyz")
    alive = await web.request("GET", "/healthz")

    assert cold.status == 503
    assert cold.json["checks"]["warm"] == "not warm yet: broker"
    assert alive.status == 200
    await eventually(lambda: not warmth.cold(), timeout_s=10)
    warm = await web.request("GET", "/readyz")
    assert (warm.status, warm.json["ready"]) == (200, True)
    assert producer.tries == 3


async def test_the_web_process_tells_of_its_purchases(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web(producer=ScriptedProducer())
    before = await metric(web, 'mq_publish_total{outcome="CONFIRMED",topic="ORDER_CREATE_V1"}')

    await asyncio.gather(*(web.buy(sale, f"buyer{n}") for n in range(5)))

    name = 'mq_publish_total{outcome="CONFIRMED",topic="ORDER_CREATE_V1"}'
    assert await metric(web, name) - before == 5
    assert await metric(web, 'pg_pool_wait_seconds_count{pool="web"}') > 0


async def metric(web: object, name: str) -> float:
    page = await web.request("GET", "/metrics")  # type: ignore[attr-defined]
    found = re.search(rf"^{re.escape(name)} (\S+)$", page.body.decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.django_db(transaction=True)
def test_a_whole_verification_of_the_audit_record_sets_its_gauge() -> None:
    metrics.FINDINGS.set(7)

    assert verify_audit() == 0

    assert REGISTRY.get_sample_value("dlq_audit_findings") == 0


@pytest.mark.django_db(transaction=True)
def test_the_sender_tells_how_large_the_tables_are() -> None:
    def told() -> dict[str, float]:
        sender.keep_gauges(OneTurn(), Pulse())
        return {
            table: REGISTRY.get_sample_value("messaging_table_bytes", {"table": table}) or 0.0
            for table in partitions.TABLES
        }

    before = told()
    entries = [InboxEntry(message_id=f"evt_{ULID()}", outcome="APPLIED") for _ in range(2_000)]
    with transaction.atomic():
        inbox.claim(group=CG_ORDER_CREATE, entries=entries)
    after = told()

    assert after["messaging_inbox"] > before["messaging_inbox"] + 2_000 * 30
    assert after["messaging_outbox"] == before["messaging_outbox"]
