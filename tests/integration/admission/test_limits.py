"""Who is let in and how fast: tokens, limits, queue, sold-out answers, bad input."""

import asyncio
import time
from typing import Any

import jwt
import pytest
from django.conf import settings

from inventory import verbs
from inventory.contracts import ReleaseItem
from inventory.gate import gate
from tests.fixtures.sales import Sale
from tests.fixtures.web import ScriptedProducer, StartWeb, bearer, eventually, hot_path

JSON = {"Content-Type": "application/json"}


async def test_per_user_limit_is_by_user_not_by_address(start_web: StartWeb, sale: Sale) -> None:
    """Case 25: 50 users behind one address are 50 users."""
    web = await start_web()

    crowd = await asyncio.gather(*(web.buy(sale, f"u{n}") for n in range(50)))
    one = await asyncio.gather(*(web.buy(sale, "greedy", key=f"k{n}") for n in range(30)))

    assert 429 not in {reply.status for reply in crowd}
    refused = [reply for reply in one if reply.status == 429]
    assert 19 <= len(refused) <= 20
    assert refused[0].code == "THROTTLED"
    assert refused[0].headers["retry-after"] == "1"


async def test_repeats_of_a_known_key_are_exempt(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    first = await web.buy(sale, "alice", key="k")

    repeats = [await web.buy(sale, "alice", key="k") for _ in range(40)]

    assert {reply.status for reply in repeats} == {202}
    assert {reply.json["reservation_id"] for reply in repeats} == {first.json["reservation_id"]}


async def test_entry_rate_is_shared_among_web_processes(
    start_web: StartWeb, sale: Sale, settings: Any
) -> None:
    settings.SECKILL_ENTRY_RATE = 20.0
    settings.SECKILL_WEB_PROCESSES = 2
    web = await start_web()

    replies = await asyncio.gather(*(web.buy(sale, f"u{n}") for n in range(10)))

    assert [reply.status for reply in replies].count(202) == 1
    assert [reply.status for reply in replies].count(429) == 9


async def test_full_queue_answers_at_once(start_web: StartWeb, sale: Sale, settings: Any) -> None:
    """Queue and batches in flight are bounded; over them 503, without waiting."""
    settings.SECKILL_ADMISSION_QUEUE = 5
    settings.SECKILL_ADMISSION_BATCHES = 1
    settings.SECKILL_GATHER_MAX = 2
    hold = asyncio.Event()
    producer = ScriptedProducer(hold=hold)
    web = await start_web(producer=producer)
    first = [asyncio.create_task(web.buy(sale, f"a{n}")) for n in range(2)]
    await eventually(lambda: producer.sent)
    waiting = [asyncio.create_task(web.buy(sale, f"b{n}")) for n in range(5)]
    await asyncio.sleep(0.05)

    started = time.monotonic()
    refused = await web.buy(sale, "late")
    took_s = time.monotonic() - started
    hold.set()
    replies = await asyncio.gather(*first, *waiting)

    assert (refused.status, refused.code) == (503, "OVERLOADED")
    assert took_s < 0.1
    assert {reply.status for reply in replies} == {202}
    assert max(producer.batches) <= 2
    assert "late" not in sale.holders()


@pytest.mark.parametrize("sale", [{"units": 1}], indirect=True)
async def test_sold_out_is_answered_without_redis_and_clears_after_a_release(
    start_web: StartWeb, sale: Sale
) -> None:
    """Case 3: the local flag, its holders, and its end within a second of a release."""
    web = await start_web()
    first = await web.buy(sale, "alice", key="k")

    async def flagged() -> bool:
        before = calls(sale)
        reply = await web.buy(sale, f"x{time.monotonic_ns()}")
        assert reply.code == "SOLD_OUT"
        return calls(sale) == before

    await eventually(flagged, timeout_s=3)
    holder = await web.buy(sale, "alice", key="other")
    assert holder.code == "ALREADY_RESERVED"
    assert holder.json["reservation_id"] == first.json["reservation_id"]
    repeated = await web.buy(sale, "alice", key="k")
    assert repeated.status == 202

    gate().run(
        verbs.release(
            activity_id=sale.activity_id,
            items=[
                ReleaseItem(
                    sku_id=sale.sku_id,
                    reservation_id=first.json["reservation_id"],
                    user_id="alice",
                    quantity=1,
                    restock=True,
                    reason="USER",
                )
            ],
        )
    )

    async def sold_again() -> bool:
        return (await web.buy(sale, f"y{time.monotonic_ns()}")).status == 202

    await eventually(sold_again, timeout_s=1.0)
    assert sale.gate_stock() == 0
    # Sold out again: the key of the released one still tells how that ended.
    await eventually(flagged, timeout_s=3)
    ended = await web.buy(sale, "alice", key="k")
    assert (ended.code, ended.json["reason"]) == ("RESERVATION_ENDED", "USER")


def calls(sale: Sale) -> int:
    """Count the scripts that Redis ran for anybody; this test is alone on its database."""
    info = gate()._client.info("commandstats")
    return sum(info.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))


BAD_BODIES = [
    (b"", 400, "BAD_BODY"),
    (b"{", 400, "BAD_BODY"),
    (b"[]", 400, "BAD_BODY"),
    (b"null", 400, "BAD_BODY"),
    (b"{}", 400, "BAD_BODY"),
    (b"\xff\xfe", 400, "BAD_BODY"),
    (b'{"quantity": "1"}', 400, "BAD_BODY"),
    (b'{"quantity": 0}', 400, "BAD_BODY"),
    (b'{"quantity": -1}', 400, "BAD_BODY"),
    (b'{"quantity": 1.5}', 400, "BAD_BODY"),
    (b'{"quantity": true}', 400, "BAD_BODY"),
    (b'{"quantity": null}', 400, "BAD_BODY"),
    (b'{"quantity": [1]}', 400, "BAD_BODY"),
    (b'{"quantity": NaN}', 400, "BAD_BODY"),
    (b'{"quantity": 99999999999999999999999}', 400, "BAD_BODY"),
    (b'{"quantity": 1000000000}', 422, "LIMIT_EXCEEDED"),
    (b"[" * 4000, 400, "BAD_BODY"),
    (b'{"quantity": 1, "x": "' + b"a" * 4100 + b'"}', 413, "TOO_LARGE"),
]


async def test_bad_bodies(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    for n, (body, status, code) in enumerate(BAD_BODIES):
        reply = await web.request("POST", hot_path(sale), body=body, headers=bearer(f"u{n}") | JSON)
        assert (reply.status, reply.code) == (status, code), body
    assert sale.gate_stock() == 10


async def test_huge_bodies_are_refused_by_length_and_by_size(
    start_web: StartWeb, sale: Sale
) -> None:
    web = await start_web()
    headers = bearer("alice") | JSON

    declared = await web.request(
        "POST", hot_path(sale), headers=headers | {"Content-Length": "9" * 30}
    )
    streamed = await web.request("POST", hot_path(sale), headers=headers, chunks=[b"x" * 999] * 99)
    split = await web.request(
        "POST", hot_path(sale), headers=headers, chunks=[b'{"quan', b'tity"', b": 1}"]
    )

    assert (declared.status, declared.code) == (413, "TOO_LARGE")
    assert (streamed.status, streamed.code) == (413, "TOO_LARGE")
    assert split.status == 202


async def test_hostile_keys_are_refused_before_the_gate(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    cyrillic = "\u043a\u043b\u044e\u0447".encode().decode("latin-1")
    for n, key in enumerate(["", " ", "a" * 65, "a b", cyrillic, "a\nb", "a{b}", "a/b", "'"]):
        reply = await web.buy(sale, f"u{n}", key=key)
        assert (reply.status, reply.code) == (400, "BAD_IDEMPOTENCY_KEY"), key
    assert sale.gate_stock() == 10


async def test_allowed_key_of_every_kind(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()

    reply = await web.buy(sale, "alice", key="aZ09._:-" * 8)

    assert reply.status == 202


def signed(claims: dict[str, Any], *, key: str | None = None, algorithm: str = "HS256") -> str:
    return jwt.encode(claims, key or settings.SECKILL_JWT_SECRET, algorithm=algorithm)


def bad_tokens() -> dict[str, str]:
    soon = int(time.time()) + 600
    good = signed({"sub": "alice", "exp": soon})
    head, body, signature = good.split(".")
    return {
        "none": "",
        "scheme": "Basic YTpi",
        "empty": "Bearer ",
        "noise": "Bearer x.y.z",
        "bytes": "Bearer \xff\xfe",
        "expired": f"Bearer {signed({'sub': 'alice', 'exp': 1})}",
        "no exp": f"Bearer {signed({'sub': 'alice'})}",
        "odd exp": f"Bearer {signed({'sub': 'alice', 'exp': 'x'})}",
        "no sub": f"Bearer {signed({'exp': soon})}",
        "number sub": f"Bearer {signed({'sub': 7, 'exp': soon})}",
        "long sub": f"Bearer {signed({'sub': 'a' * 65, 'exp': soon})}",
        "hostile sub": f"Bearer {signed({'sub': 'a b', 'exp': soon})}",
        "newline sub": f"Bearer {signed({'sub': 'alice' + chr(10), 'exp': soon})}",
        "other key": f"Bearer {signed({'sub': 'alice', 'exp': soon}, key='k' * 32)}",
        "refresh": f"Bearer {signed({'sub': 'alice', 'exp': soon, 'use': 'refresh'})}",
        "other algorithm": "Bearer "
        + signed({"sub": "alice", "exp": soon}, algorithm="HS512", key="k" * 64),
        "no algorithm": "Bearer " + jwt.encode({"sub": "alice", "exp": soon}, "", algorithm="none"),
        "cut": f"Bearer {head}.{body}.{signature[:-4]}",
        "no signature": f"Bearer {head}.{body}.",
        "long": f"Bearer {good}{'a' * 9000}",
    }


async def test_bad_tokens_are_401(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    for name, header in bad_tokens().items():
        headers = JSON | ({"Authorization": header} if header else {})
        reply = await web.request("POST", hot_path(sale), body=b'{"quantity":1}', headers=headers)
        assert (reply.status, reply.code) == (401, "UNAUTHENTICATED"), name
        assert reply.headers["www-authenticate"] == "Bearer"
    assert sale.gate_stock() == 10


async def test_other_methods_are_405(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"):
        reply = await web.request(method, hot_path(sale), headers=bearer("alice"))
        assert (reply.status, reply.code) == (405, "METHOD_NOT_ALLOWED"), method
        assert reply.headers["allow"] == "POST"


async def test_other_content_is_415(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""):
        reply = await web.buy(sale, "alice", headers={"Content-Type": kind})
        assert (reply.status, reply.code) == (415, "UNSUPPORTED_MEDIA_TYPE"), kind
    utf8 = await web.buy(sale, "alice", headers={"Content-Type": "Application/JSON; charset=utf-8"})
    assert utf8.status == 202


async def test_bad_traceparent_is_replaced(start_web: StartWeb, sale: Sale) -> None:
    producer = ScriptedProducer()
    web = await start_web(producer=producer)
    a, b = "a" * 32, "b" * 16
    bad = ["", "x", f"00-{'0' * 32}-{b}-01", f"00-{a}-{'0' * 16}-01", f"01-{a}-{b}-01", "\xff"]
    for n, traceparent in enumerate(bad):
        reply = await web.buy(sale, f"u{n}", headers={"traceparent": traceparent})
        assert reply.status == 202
    made = [message.properties["traceparent"] for message in producer.sent]
    assert not set(made) & set(bad)
    assert {len(traceparent) for traceparent in made} == {55}
    assert len(set(made)) == len(bad)


async def test_client_that_hangs_up_changes_nothing(start_web: StartWeb, sale: Sale) -> None:
    hold = asyncio.Event()
    producer = ScriptedProducer(hold=hold)
    web = await start_web(producer=producer)
    gone = asyncio.create_task(web.buy(sale, "alice", key="k"))
    await eventually(lambda: producer.sent)
    other = asyncio.create_task(web.buy(sale, "alice", key="k"))
    await asyncio.sleep(0.05)
    gone.cancel()
    hold.set()

    reply = await other

    assert reply.status == 202
    assert sale.holders() == {"alice": reply.json["reservation_id"]}
