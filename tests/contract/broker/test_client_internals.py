"""Every part of the client package that we use, and every trap in it that we step around."""

import asyncio
import gzip
import hashlib
import hmac
import threading
import time
import zlib

import grpc
import pytest

from messaging import topology
from messaging.broker.base import FailureClass, SendOutcome, SendResult
from messaging.broker.rocketmq import RocketMQBroker
from messaging.broker.rocketmq_channel import Connection, Credentials, new_client_id, protocol
from messaging.broker.rocketmq_decode import Answer, decode
from messaging.broker.rocketmq_producer import build_request
from messaging.errors import BrokerUnavailable
from tests.contract.broker.harness import Harness, RocketMQHarness, collect, message


def test_the_stub_has_the_calls_that_we_make() -> None:
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        stub = protocol().stub(channel)
        calls = (
            "SendMessage", "QueryRoute", "ReceiveMessage", "AckMessage", "ChangeInvisibleDuration",
            "Telemetry", "NotifyClientTermination",
        )  # fmt: skip
        assert [name for name in calls if not hasattr(stub, name)] == []


def test_a_send_request_carries_exactly_what_was_given(real: Harness) -> None:
    topic = real.topic(topology.TopicType.DELAY)
    sent = message(topic, deliver_at_ms=1_700_000_000_123)

    request = build_request([sent])

    (out,) = request.messages
    system = out.system_properties
    assert out.topic.name == topology.physical_topic(topic)
    assert (out.body, dict(out.user_properties)) == (sent.body, sent.properties)
    assert (system.message_id, tuple(system.keys), system.tag) == (
        sent.message_id, sent.keys, sent.tag,
    )  # fmt: skip
    assert system.delivery_timestamp.ToMilliseconds() == 1_700_000_000_123
    assert system.message_type == protocol().definitions.MessageType.DELAY
    assert abs(system.born_timestamp.ToMilliseconds() - time.time() * 1000) < 5_000


def test_the_headers_are_signed_with_the_access_key_and_show_no_secret() -> None:
    connection = Connection(
        endpoints="127.0.0.1:1", credentials=Credentials(ak="buyer", sk="top-secret")
    )

    headers = dict(connection.metadata("client-1"))

    mac = hmac.new(b"top-secret", headers["x-mq-date-time"].encode(), hashlib.sha1).hexdigest()
    assert headers["authorization"] == (
        f"MQv2-HMAC-SHA1 Credential=buyer, SignedHeaders=x-mq-date-time, Signature={mac}"
    )
    assert headers["x-mq-client-id"] == "client-1"
    assert "top-secret" not in repr(headers) + repr(connection)


def test_client_ids_differ() -> None:
    assert len({new_client_id() for _ in range(100)}) == 100


def test_tls_with_an_unknown_certificate_is_refused(real: Harness) -> None:
    """The proxy's own test certificate proves nothing: no message leaves the process."""
    settings = Connection.from_settings()
    producer = RocketMQBroker(Connection(endpoints=settings.endpoints, tls=True)).producer()

    result = producer.send([message(real.topic())], timeout_ms=3000)

    assert (result.outcome, result.failure) == (
        SendOutcome.DEFINITE_FAILURE,
        FailureClass.RETRY_LATER,
    )
    producer.close()


def test_a_proxy_that_forgot_our_settings_is_told_them_again(real: Harness) -> None:
    """The trap `"settings" is null`: it lasts up to ten minutes unless they are sent again."""
    topic = real.topic()
    with real.receiver(topic) as receiver:
        producer = real.broker.producer()
        producer.send([message(topic)], timeout_ms=3000)
        receiver.ack(collect(receiver), timeout_ms=3000)
        receiver._say_goodbye()  # the proxy drops everything that it knows of this client
        producer.send([message(topic)], timeout_ms=3000)
        began = time.monotonic()

        (got,) = collect(receiver)

        assert time.monotonic() - began < 5
        assert receiver.ack([got], timeout_ms=3000) == []
        producer.close()


def test_close_unblocks_a_running_receive_at_once(
    real: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = real.topic()
    receiver = real.broker.receiver(group=real.group(topic), topic=topic)
    ended: list[float] = []
    polling = threading.Event()
    poll = receiver._poll
    monkeypatch.setattr(receiver, "_poll", lambda *a, **k: (polling.set(), poll(*a, **k))[1])

    def work() -> None:
        with pytest.raises(BrokerUnavailable):
            receiver.receive(max_messages=1, invisible_s=10, wait_s=20)
        ended.append(time.monotonic())

    thread = threading.Thread(target=work)
    thread.start()
    assert polling.wait(10)
    before = threading.active_count()

    receiver.close()
    closed_at = time.monotonic()
    thread.join(5)

    assert ended[0] - closed_at < 1
    assert threading.active_count() <= before - 2  # the poller and the session


def test_a_group_that_the_broker_does_not_have_is_named(real: Harness) -> None:
    topic = real.topic()
    group = "CG_TEST_NOT_PROVISIONED_V1"
    receiver = real.broker.receiver(group=group, topic=topic)

    with pytest.raises(BrokerUnavailable):
        receiver.receive(max_messages=1, invisible_s=10, wait_s=5)
    receiver.close()


def _answer(body: bytes, encoding: str, digest: str = "", kind: str = "MD5") -> Answer:
    types = protocol().definitions
    delivered = types.Message(body=body)
    delivered.system_properties.message_id = "evt_1"
    delivered.system_properties.body_encoding = types.Encoding.Value(encoding)
    delivered.system_properties.body_digest.type = types.DigestType.Value(kind)
    delivered.system_properties.body_digest.checksum = digest
    answer = Answer()
    answer.messages.append(delivered)
    return answer


def _md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest().upper()


@pytest.mark.parametrize(
    ("packed", "encoding"),
    [
        (b"hello", "IDENTITY"),
        (gzip.compress(b"hello"), "GZIP"),
        (zlib.compress(b"hello"), "GZIP"),
    ],
    ids=["plain", "gzip", "zlib"],
)
def test_bodies_are_unpacked(packed: bytes, encoding: str) -> None:
    (got,) = decode(_answer(packed, encoding, _md5(packed)), topic="T", called_at=0, invisible_s=1)

    assert got.body == b"hello"


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        ("CRC32", f"{zlib.crc32(b'hello'):08X}"),
        ("MD5", _md5(b"hello")),
        ("SHA1", hashlib.sha1(b"hello", usedforsecurity=False).hexdigest().upper()),
    ],
)
def test_a_body_that_does_not_match_its_digest_is_left_out(kind: str, digest: str) -> None:
    good = _answer(b"hello", "IDENTITY", digest, kind)
    bad = _answer(b"hellp", "IDENTITY", digest, kind)

    assert len(decode(good, topic="T", called_at=0, invisible_s=1)) == 1
    assert decode(bad, topic="T", called_at=0, invisible_s=1) == []


@pytest.mark.parametrize(
    "packed",
    [b"no gzip", gzip.compress(b"x")[:-9], gzip.compress(b"x" * (5 << 20))],
    ids=["not packed", "cut", "too much"],
)
def test_a_body_that_cannot_be_unpacked_is_left_out(packed: bytes) -> None:
    answer = _answer(packed, "GZIP", _md5(packed))

    assert decode(answer, topic="T", called_at=0, invisible_s=1) == []


@pytest.mark.parametrize(
    ("age_s", "called_ago_s", "wanted_ago_s"),
    [(3.0, 10.0, 3.0), (30.0, 10.0, 10.0), (-5.0, 10.0, 0.0), (None, 10.0, 10.0)],
    ids=["late reader", "wall clock ahead", "wall clock behind", "no time stamp"],
)
def test_the_invisible_time_counts_from_the_answer_not_from_its_reading(
    age_s: float | None, called_ago_s: float, wanted_ago_s: float
) -> None:
    answer = _answer(b"x", "IDENTITY", _md5(b"x"))
    if age_s is not None:
        answer.delivered_at_ms = round((time.time() - age_s) * 1000)
    now = time.monotonic()

    (got,) = decode(answer, topic="T", called_at=now - called_ago_s, invisible_s=15)

    assert got.invisible_until == pytest.approx(now - wanted_ago_s + 15, abs=0.1)


def test_the_proxy_says_when_it_delivered(real: Harness) -> None:
    topic = real.topic()
    producer = real.broker.producer()
    producer.send([message(topic)], timeout_ms=3000)
    producer.close()
    with real.receiver(topic) as receiver:
        receiver._ready_session()
        answer = receiver._poll(receiver._receive_request(1, 30, 5), timeout_s=8)

    assert len(answer.messages) == 1
    assert abs(time.time() * 1000 - answer.delivered_at_ms) < 2000
    assert answer.messages[0].system_properties.body_digest.checksum == _md5(b'{"n":1}')


def test_close_while_sending_leaves_the_send_unknown(real: RocketMQHarness) -> None:
    topic = real.topic()
    results: list[SendResult] = []
    with real.silent() as broker:
        producer = broker.producer()
        thread = threading.Thread(
            target=lambda: results.append(producer.send([message(topic)], timeout_ms=10_000))
        )
        thread.start()
        real.wait_connected()
        producer.close()
        thread.join(5)

    assert [(r.outcome, r.failure) for r in results] == [(SendOutcome.UNKNOWN, None)]


async def test_close_while_sending_leaves_the_async_send_unknown(real: RocketMQHarness) -> None:
    topic = real.topic()
    with real.silent() as broker:
        producer = broker.async_producer()
        task = asyncio.create_task(producer.send([message(topic)], timeout_ms=10_000))
        await asyncio.to_thread(real.wait_connected)
        await producer.close()

        result = await asyncio.wait_for(task, 5)

    assert (result.outcome, result.failure) == (SendOutcome.UNKNOWN, None)


async def test_a_cancelled_sender_is_cancelled(real: RocketMQHarness) -> None:
    topic = real.topic()
    with real.silent() as broker:
        producer = broker.async_producer()
        task = asyncio.create_task(producer.send([message(topic)], timeout_ms=10_000))
        await asyncio.to_thread(real.wait_connected)
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        await producer.close()
