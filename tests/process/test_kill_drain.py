"""The drain, killed between store and ack: the letter comes again and changes nothing."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.conf import settings
from django.db import connection

from dlq_admin.models import DlqMessage, DlqOccurrence, Ticket
from messaging.broker import broker
from messaging.broker.base import OutgoingMessage, SendOutcome
from messaging.provision import deprovision, provision
from messaging.topology import (
    CG_ORDER_CREATE,
    DLQ_DRAIN,
    ORDER_CREATE,
    dlq_topic,
    enabled_groups,
    enabled_topics,
)
from tests.fixtures.sales import create_message, open_sale

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.process,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_client"),
]


@pytest.fixture
def own_broker(settings) -> Iterator[str]:
    """Topics of this test alone; the order group gives up after two deliveries."""
    settings.SECKILL_TOPIC_PREFIX = f"{settings.SECKILL_TOPIC_PREFIX[:7]}_DRAIN_SECKILL_"
    groups = [
        replace(group, max_retries=1) if group.name == CG_ORDER_CREATE else group
        for group in enabled_groups()
    ]
    provision(
        topics=[replace(topic, queues=1) for topic in enabled_topics()], groups=[*groups, DLQ_DRAIN]
    )
    yield settings.SECKILL_TOPIC_PREFIX
    deprovision(settings.SECKILL_TOPIC_PREFIX)


def wait_for(condition: Callable[[], object], *, timeout_s: float, log: Path) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, log.read_text() if log.exists() else "no log"
        time.sleep(0.1)


def start(log: Path, faultpoints: str, prefix: str) -> subprocess.Popen[bytes]:
    parts = urlsplit(os.environ["DATABASE_URL"])
    environment = {
        **os.environ,
        "DATABASE_URL": urlunsplit(parts._replace(path=f"/{connection.settings_dict['NAME']}")),
        "REDIS_URL": settings.REDIS_URL,
        "SECKILL_TOPIC_PREFIX": prefix,
        "SECKILL_FAULTPOINTS_ALLOWED": "1",
        "SECKILL_FAULTPOINTS": faultpoints,
        "SECKILL_METRICS_PORT": "0",
    }
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "manage.py", "run_dlq_drain"],
            cwd=ROOT, env=environment, stdout=out, stderr=out,
        )  # fmt: skip


def let_it_die(message: OutgoingMessage, *, give_up: threading.Event) -> None:
    """Send a message and receive it without an ack until the broker gives up on it."""
    producer = broker().producer()
    assert producer.send([message], timeout_ms=5_000).outcome is SendOutcome.CONFIRMED
    producer.close()
    receiver = broker().receiver(group=CG_ORDER_CREATE, topic=ORDER_CREATE)
    try:
        while not give_up.is_set():  # nothing moves while nobody polls the group
            receiver.receive(max_messages=1, invisible_s=1, wait_s=5)
    finally:
        receiver.close()


def test_a_drain_killed_between_store_and_ack_stores_nothing_twice(
    own_broker: str, tmp_path: Path
) -> None:
    sale = open_sale()
    reservation = sale.reserve("alice")
    made = create_message(reservation)
    message = OutgoingMessage(
        topic=ORDER_CREATE, message_id=made.message_id, body=made.body, tag=made.tag,
        keys=made.keys, properties={**made.properties, "origin_topic": ORDER_CREATE},
    )  # fmt: skip
    log = tmp_path / "drain.log"
    give_up = threading.Event()
    dying = threading.Thread(target=let_it_die, args=(message,), kwargs={"give_up": give_up})
    dying.start()
    drain = start(log, "drain.after_store=kill", own_broker)
    try:
        assert drain.wait(60) == -signal.SIGKILL, log.read_text()
        give_up.set()
        dying.join(15)

        row = DlqMessage.objects.get()
        assert (bytes(row.body), row.consumer_group) == (message.body, CG_ORDER_CREATE)
        assert sale.quarantine_row(reservation) == ("OPEN", 1)
        assert dlq_topic(CG_ORDER_CREATE) not in row.topic

        drain = start(log, "", own_broker)
        wait_for(lambda: b"dead_letters_captured" in log.read_bytes(), timeout_s=60, log=log)

        assert DlqMessage.objects.get().occurrence_count == DlqOccurrence.objects.count() == 1
        assert Ticket.objects.get().message_count == 1
        assert sale.quarantine_row(reservation) == ("OPEN", 1)
        drain.send_signal(signal.SIGTERM)
        assert drain.wait(12) == 0, log.read_text()
    finally:
        give_up.set()
        if drain.poll() is None:
            drain.kill()
            drain.wait(10)
