"""Lost answers and failed sends: what the buyer is told, and what is left at the gate.

Rules `reserve-once`, `observe-already`, `release-answer` of docs/protocol.md; cases 13, 14, 34.
"""

import asyncio
from typing import Any

import pytest

from inventory import verbs
from inventory.contracts import ReleaseItem
from inventory.gate import gate
from messaging.broker.base import FailureClass, SendOutcome, SendResult
from orders.selectors import reservation_status
from tests.fixtures.sales import Sale
from tests.fixtures.web import (
    CONFIRMED,
    UNKNOWN,
    FlakyGate,
    Reply,
    ScriptedProducer,
    StartWeb,
    eventually,
    failed,
    in_thread,
)


def stats(sale: Sale) -> tuple[int, int]:
    found = gate().run(verbs.pending_stats(activity_id=sale.activity_id))
    return found.pending, found.open


async def test_reply_of_reserve_lost_once_names_own_reservation(
    start_web: StartWeb, sale: Sale
) -> None:
    """Case 34: the repeat carries the same ids and counts as success."""
    producer = ScriptedProducer()
    web = await start_web(gate=lambda: FlakyGate("reserve", ["after"]), producer=producer)

    reply = await web.buy(sale, "alice", key="k")

    assert reply.status == 202
    assert reply.json["status"] == "QUEUED"
    assert sale.holders() == {"alice": reply.json["reservation_id"]}
    assert sale.gate_stock() == 9
    assert len(producer.sent) == 1


async def test_reserve_that_never_ran_is_repeated_once(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web(gate=lambda: FlakyGate("reserve", ["before"]))

    reply = await web.buy(sale, "alice")

    assert reply.status == 202
    assert sale.gate_stock() == 9


async def test_reply_of_reserve_lost_twice_is_result_unknown(
    start_web: StartWeb, sale: Sale
) -> None:
    """Nothing is released, no new ids are drawn: the same key tells what happened."""
    producer = ScriptedProducer()
    web = await start_web(gate=lambda: FlakyGate("reserve", ["after", "after"]), producer=producer)

    reply = await web.buy(sale, "alice", key="k")
    again = await web.buy(sale, "alice", key="k")

    assert (reply.status, reply.code) == (503, "RESULT_UNKNOWN")
    assert "retry-after" in reply.headers
    assert producer.sent == []
    assert again.status == 202
    assert again.json["status"] == "PENDING"
    assert sale.holders() == {"alice": again.json["reservation_id"]}
    assert sale.gate_stock() == 9


async def test_gate_that_does_not_answer_is_asked_twice_only(
    start_web: StartWeb, sale: Sale
) -> None:
    made: list[FlakyGate] = []

    def flaky() -> FlakyGate:
        made.append(FlakyGate("reserve", ["before"] * 9))
        return made[0]

    web = await start_web(gate=flaky)

    reply = await web.buy(sale, "alice")

    assert (reply.status, reply.code) == (503, "RESULT_UNKNOWN")
    assert made[0].calls.count("reserve") == 2


@pytest.mark.parametrize(
    "kind", [FailureClass.RETRY_LATER, FailureClass.LOAD, FailureClass.BAD_MESSAGE]
)
async def test_definite_failure_gives_stock_and_buyer_back(
    start_web: StartWeb, sale: Sale, redis_client: Any, kind: FailureClass
) -> None:
    web = await start_web(producer=ScriptedProducer(outcomes=[failed(kind)]))

    reply = await web.buy(sale, "alice", key="k")

    assert (reply.status, reply.code) == (503, "SEND_FAILED")
    assert sale.holders() == {}
    assert sale.gate_stock() == 10
    assert stats(sale) == (0, 0)
    assert redis_client.keys("*:request:*") == []
    again = await web.buy(sale, "alice", key="k")
    assert again.status == 202
    assert sale.gate_stock() == 9


async def test_give_back_refused_after_observation_is_pending(
    start_web: StartWeb, sale: Sale
) -> None:
    """Another request saw the reservation: it is no longer ours alone, the scanner will send it."""
    producer = ScriptedProducer(outcomes=[failed(FailureClass.RETRY_LATER)], hold=asyncio.Event())
    web = await start_web(producer=producer)
    first = asyncio.create_task(web.buy(sale, "alice", key="a"))
    await eventually(lambda: producer.sent)

    other = await web.buy(sale, "alice", key="b")
    assert producer.hold is not None
    producer.hold.set()
    reply = await first

    assert (other.status, other.code) == (409, "ALREADY_RESERVED")
    assert reply.status == 202
    assert reply.json["status"] == "PENDING"
    assert sale.holders() == {"alice": reply.json["reservation_id"]}
    assert stats(sale) == (1, 1)


async def test_give_back_after_the_scanner_took_over_is_pending(
    start_web: StartWeb, sale: Sale
) -> None:
    """A stalled process: its lease ran out and the scanner claimed the reservation."""

    def claim() -> None:
        (due,) = gate().run(
            verbs.open_page(
                activity_id=sale.activity_id,
                min_score_ms=0,
                max_score_ms=2**53 - 1,
                offset=0,
                limit=1,
            )
        )
        # The lease is over a second from now: let the clock of the test stand still instead.
        client = redis_of()
        client.hset(f"seckill:{{{sale.activity_id}}}:reservation:{due[0]}", "lease_owner", "scan")
        client.hset(f"seckill:{{{sale.activity_id}}}:reservation:{due[0]}", "send_attempt", 1)

    web = await start_web(
        producer=ScriptedProducer(outcomes=[failed(FailureClass.RETRY_LATER)], before_answer=claim)
    )

    reply = await web.buy(sale, "alice")

    assert reply.status == 202
    assert reply.json["status"] == "PENDING"
    assert sale.gate_stock() == 9


async def test_give_back_of_a_released_one_is_503(start_web: StartWeb, sale: Sale) -> None:
    """Rule `release-answer`: RELEASED is never told as 202."""
    web = await start_web(
        producer=ScriptedProducer(
            outcomes=[failed(FailureClass.RETRY_LATER)], before_answer=lambda: end(sale)
        )
    )

    reply = await web.buy(sale, "alice")

    assert (reply.status, reply.code) == (503, "SEND_FAILED")
    assert sale.gate_stock() == 10


async def test_give_back_of_a_rejected_one_tells_the_reason(
    start_web: StartWeb, sale: Sale
) -> None:
    """The message was stored after all and PostgreSQL rejected it: 409 with its reason."""
    rejected: list[str] = []
    hold = asyncio.Event()
    producer = ScriptedProducer(outcomes=[failed(FailureClass.RETRY_LATER)], hold=hold)
    web = await start_web(producer=producer)
    buying = asyncio.create_task(web.buy(sale, "alice", key="k"))
    await eventually(lambda: producer.sent)
    (rejected_id,) = sale.open_ids()
    await in_thread(reject, sale, rejected_id)
    rejected.append(rejected_id)
    end(sale)
    hold.set()

    reply = await buying

    assert (reply.status, reply.code) == (409, "RESERVATION_ENDED")
    assert reply.json["reason"] == "NO_FINAL_STOCK"
    assert reply.json["reservation_id"] == rejected_id


async def test_give_back_without_a_hash_is_result_unknown(
    start_web: StartWeb, sale: Sale, redis_client: Any
) -> None:
    def lose() -> None:
        for key in redis_client.keys("*:reservation:rsv_*"):
            redis_client.delete(key)

    web = await start_web(
        producer=ScriptedProducer(outcomes=[failed(FailureClass.RETRY_LATER)], before_answer=lose)
    )

    reply = await web.buy(sale, "alice")

    assert (reply.status, reply.code) == (503, "RESULT_UNKNOWN")


async def test_give_back_answer_lost_once_is_repeated(start_web: StartWeb, sale: Sale) -> None:
    """The first ran: the repeat finds it RELEASED, which is a 503 as well."""
    web = await start_web(
        gate=lambda: FlakyGate("give_back", ["after"]),
        producer=ScriptedProducer(outcomes=[failed(FailureClass.LOAD)]),
    )

    reply = await web.buy(sale, "alice")

    assert (reply.status, reply.code) == (503, "SEND_FAILED")
    assert sale.gate_stock() == 10


async def test_give_back_answer_lost_twice_is_result_unknown(
    start_web: StartWeb, sale: Sale
) -> None:
    web = await start_web(
        gate=lambda: FlakyGate("give_back", ["before", "before"]),
        producer=ScriptedProducer(outcomes=[failed(FailureClass.LOAD)]),
    )

    reply = await web.buy(sale, "alice")

    assert (reply.status, reply.code) == (503, "RESULT_UNKNOWN")
    assert stats(sale) == (1, 1)


async def test_lost_mark_changes_nothing_for_the_buyer(start_web: StartWeb, sale: Sale) -> None:
    """The message is stored; the scanner sends it again and the inbox makes it one effect."""
    web = await start_web(gate=lambda: FlakyGate("mark_sent", ["before"]))

    reply = await web.buy(sale, "alice")

    assert reply.json["status"] == "QUEUED"
    assert stats(sale) == (1, 1)


async def test_configuration_failure_fails_closed_before_reserving(
    start_web: StartWeb, sale: Sale
) -> None:
    producer = ScriptedProducer(outcomes=[failed(FailureClass.CONFIGURATION)])
    web = await start_web(producer=producer)
    assert (await web.buy(sale, "alice")).code == "SEND_FAILED"

    reply = await web.buy(sale, "bob")

    assert (reply.status, reply.code) == (503, "FAIL_CLOSED")
    assert int(reply.headers["retry-after"]) >= 1
    assert [message.keys for message in producer.sent[1:]] == []
    assert sale.gate_stock() == 10
    assert sale.holders() == {}

    async def open_again() -> bool:
        return (await web.buy(sale, "bob")).status == 202

    await eventually(open_again, timeout_s=6, every_s=0.2)


async def test_repeated_key_waits_for_the_same_send(start_web: StartWeb, sale: Sale) -> None:
    """Same key 5 times at once: one reservation, one message, one body."""
    hold = asyncio.Event()
    producer = ScriptedProducer(hold=hold)
    web = await start_web(producer=producer)
    first = asyncio.create_task(web.buy(sale, "alice", key="k"))
    await eventually(lambda: producer.sent)
    others = [asyncio.create_task(web.buy(sale, "alice", key="k")) for _ in range(4)]
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in [first, *others])

    hold.set()
    replies: list[Reply] = list(await asyncio.gather(first, *others))

    assert {reply.status for reply in replies} == {202}
    assert len({reply.body for reply in replies}) == 1
    assert replies[0].json["status"] == "QUEUED"
    assert len(producer.sent) == 1


@pytest.mark.parametrize("outcome", [UNKNOWN, failed(FailureClass.LOAD), CONFIRMED])
async def test_repeated_key_in_one_batch_gets_one_answer(
    start_web: StartWeb, sale: Sale, outcome: SendResult
) -> None:
    """R024: 50 clicks with one key at once get one body, whatever becomes of the send."""
    producer = ScriptedProducer(outcomes=[outcome])
    web = await start_web(producer=producer)

    replies = await asyncio.gather(*(web.buy(sale, "alice", key="k") for _ in range(50)))

    statuses = {reply.status for reply in replies} - {429}
    bodies = {reply.body for reply in replies if reply.status != 429}
    assert len(bodies) == 1
    if outcome.outcome is SendOutcome.CONFIRMED:
        assert statuses == {202}
        assert sale.gate_stock() == 9
    else:
        # Seen by its own repeats, a failed one is not given back: the scanner sends it.
        assert statuses == {202}
        assert replies[0].json["status"] == "PENDING"


async def test_web_process_that_breaks_in_a_batch_answers_unknown(
    start_web: StartWeb, sale: Sale
) -> None:
    """Whatever raises after the gate call: nobody is left waiting, nothing is claimed."""

    def explode() -> None:
        raise RuntimeError("a bug")

    web = await start_web(producer=ScriptedProducer(before_answer=explode))

    reply = await web.buy(sale, "alice", key="k")

    assert (reply.status, reply.code) == (503, "RESULT_UNKNOWN")
    assert sale.gate_stock() == 9


def redis_of() -> Any:
    import redis
    from django.conf import settings

    return redis.Redis.from_url(settings.REDIS_URL)


def end(sale: Sale) -> None:
    """Release everything open, as the release handler would."""
    for user, reservation_id in sale.holders().items():
        gate().run(
            verbs.release(
                activity_id=sale.activity_id,
                items=[
                    ReleaseItem(
                        sku_id=sale.sku_id,
                        reservation_id=reservation_id,
                        user_id=user,
                        quantity=1,
                        restock=True,
                        reason="NO_FINAL_STOCK",
                    )
                ],
            )
        )


def reject(sale: Sale, reservation_id: str) -> None:
    """Let the order transaction reject it: PostgreSQL has no unit left."""
    from tests.fixtures.sql import execute

    execute("UPDATE inventory_stock SET available = 0 WHERE sku_id = %s", sale.sku_id)
    (found,) = gate().run(
        verbs.reservations(activity_id=sale.activity_id, reservation_ids=[reservation_id])
    )
    assert found is not None
    sale.deliver(found)
    view = reservation_status(
        activity_id=sale.activity_id, reservation_id=reservation_id, user_id="alice"
    )
    assert view is not None
    assert view.reason == "NO_FINAL_STOCK"
