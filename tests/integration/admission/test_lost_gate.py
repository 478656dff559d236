"""Buyers of a sale whose gate is lost are told why; nobody else waits for that."""

import asyncio
import threading
import time
from typing import Any

import pytest

from inventory import keys
from seckill import web
from seckill.admission.purchase import Ticket
from seckill.web import Parts
from tests.fixtures.sales import Sale, open_sale
from tests.fixtures.web import AsgiClient, ScriptedProducer, StartWeb, eventually, in_thread


def ticket(user_id: str, sku_id: int) -> Ticket:
    return Ticket(
        sku_id=sku_id,
        user_id=user_id,
        quantity=1,
        key="",
        traceparent="",
        answer=asyncio.get_running_loop().create_future(),
    )


def parts_of(client: AsgiClient) -> Parts:
    parts = client.app._running  # type: ignore[attr-defined]
    assert isinstance(parts, Parts)
    return parts


@pytest.mark.parametrize("sale", [{"skus": 2}], indirect=True)
async def test_a_batch_sends_and_ends_while_one_question_is_asked_for_each_lost_sku(
    start_web: StartWeb, sale: Sale, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    word = asyncio.Event()

    async def gate_missing(self: Parts, key: tuple[int, int]) -> str:
        asked.append(key)
        await word.wait()
        return "CLOSED"

    monkeypatch.setattr(Parts, "_gate_missing", gate_missing)
    producer = ScriptedProducer()
    purchases = parts_of(await start_web(producer=producer)).purchases
    whole, broken = sale.sku_ids
    redis_client.delete(keys.gate(sale.activity_id, broken))
    lost = [ticket(f"u{n}", broken) for n in range(5)]
    kept = ticket("ann", whole)

    await asyncio.wait_for(purchases.run(sale.activity_id, [*lost, kept]), timeout=5)

    assert (kept.answer.result().status, len(producer.sent)) == (202, 1)
    assert not any(each.answer.done() for each in lost)
    assert asked == [(sale.activity_id, broken)]
    drained = asyncio.create_task(purchases.drain())
    await asyncio.sleep(0.01)
    assert not drained.done()
    word.set()
    await asyncio.wait_for(drained, timeout=5)
    assert [each.answer.result().code for each in lost] == ["CLOSED"] * 5


async def test_a_question_that_breaks_is_answered_all_the_same(
    start_web: StartWeb, sale: Sale, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gate_missing(self: Parts, key: tuple[int, int]) -> str:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Parts, "_gate_missing", gate_missing)
    client = await start_web()
    redis_client.flushdb()

    assert (await client.buy(sale, "ann")).code == "GATE_LOST"


async def test_a_database_that_hangs_holds_up_no_other_sale(
    start_web: StartWeb,
    sale: Sale,
    redis_client: Any,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.SECKILL_ADMISSION_BATCHES = 1
    other = await in_thread(open_sale)
    client = await start_web()
    reads: list[float] = []
    let_go = threading.Event()

    def hang() -> dict[Any, Any]:
        reads.append(time.monotonic())
        let_go.wait(20)
        raise OSError("no database")

    monkeypatch.setattr(web, "_load_catalogue", hang)
    catalogue = parts_of(client).catalogue
    catalogue._tried_at = float("-inf")
    redis_client.delete(keys.gate(sale.activity_id, sale.sku_id))
    try:
        lost = [asyncio.create_task(client.buy(sale, f"u{n}")) for n in range(20)]
        await eventually(lambda: reads)

        began = time.monotonic()
        others = [await client.buy(other, f"v{n}") for n in range(5)]

        assert [reply.status for reply in others] == [202] * 5
        assert time.monotonic() - began < 0.8  # less than the question may take
        assert not any(task.done() for task in lost)
        codes = {reply.code for reply in await asyncio.gather(*lost)}
        assert (codes, len(reads)) == ({"GATE_LOST"}, 1)
    finally:
        let_go.set()
    await eventually(lambda: catalogue._failed)

    began = time.monotonic()
    again = [await client.buy(sale, f"w{n}") for n in range(5)]

    assert time.monotonic() - began < 1.0
    assert {reply.code for reply in again} == {"GATE_LOST"}
    assert len(reads) == 1  # a read that failed counts toward the pause
