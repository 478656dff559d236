"""The result table of the hot endpoint, row by row, on real Redis and PostgreSQL."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from inventory import verbs
from inventory.contracts import GateWriteCode, PublicStatus, ReleaseItem
from inventory.gate import gate
from inventory.models import Activity, Sku
from inventory.states import GateStatus
from orders.contracts import create_order_decoder
from tests.fixtures.sales import Sale, open_sale
from tests.fixtures.web import (
    UNKNOWN,
    ScriptedProducer,
    StartWeb,
    bearer,
    eventually,
    in_thread,
)


@pytest.fixture
def unopened(transactional_db: None, redis_client: Any) -> tuple[Sale, Sale]:
    """A sale in DRAFT and one that is warm; neither has a gate."""
    made = []
    for status in ("DRAFT", "WARM"):
        now = timezone.now()
        activity = Activity.objects.create(
            name="later", status=status, starts_at=now, ends_at=now + timedelta(hours=1)
        )
        sku = Sku.objects.create(activity=activity, name="x", price_cents=1, initial_units=1)
        made.append(Sale(activity_id=activity.pk, sku_ids=[sku.pk]))
    return made[0], made[1]


def edit(sale: Sale, **changes: int) -> None:
    """Change the gate's hash directly: the operators' services have tests of their own."""
    state = gate().run(verbs.gate_state(activity_id=sale.activity_id, sku_id=sale.sku_id))
    assert state is not None
    call = verbs.edit_gate(
        activity_id=sale.activity_id,
        configs={sale.sku_id: replace(state.config, **changes)},
        version=state.version + 1,
    )
    assert gate().run(call) is GateWriteCode.OK


def release(sale: Sale, reservation_id: str, user: str, *, reason: str) -> None:
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
                    reason=reason,
                )
            ],
        )
    )


async def test_accepted_and_confirmed_is_queued(start_web: StartWeb, sale: Sale) -> None:
    producer = ScriptedProducer()
    web = await start_web(producer=producer)

    reply = await web.buy(sale, "alice", headers={"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})

    assert reply.status == 202
    assert reply.headers["content-type"] == "application/json"
    body = reply.json
    suffix = body["reservation_id"].removeprefix("rsv_")
    assert body == {
        "reservation_id": f"rsv_{suffix}",
        "order_id": f"ord_{suffix}",
        "status": "QUEUED",
        "status_url": f"/api/v1/activities/{sale.activity_id}/reservations/rsv_{suffix}",
        "events_url": f"/api/v1/activities/{sale.activity_id}/reservations/rsv_{suffix}/events",
        "valid_until": body["valid_until"],
    }
    assert sale.holders() == {"alice": f"rsv_{suffix}"}
    assert sale.gate_stock() == 9
    (message,) = producer.sent
    sent = create_order_decoder.decode(message.body)
    assert (message.message_id, sent.message_id) == (f"evt_{suffix}", f"evt_{suffix}")
    assert sent.reservation_valid_until == body["valid_until"]
    assert sent.user_id == "alice"
    assert message.properties["traceparent"] == f"00-{'a' * 32}-{'b' * 16}-01"
    assert message.properties["send_attempt"] == "1"


async def test_confirmed_is_marked_sent(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    reply = await web.buy(sale, "alice")

    def mq_status() -> str:
        (found,) = gate().run(
            verbs.reservations(
                activity_id=sale.activity_id, reservation_ids=[reply.json["reservation_id"]]
            )
        )
        assert found is not None
        return found.mq_status

    await eventually(lambda: mq_status() == "MQ_SENT")
    assert gate().run(verbs.pending_stats(activity_id=sale.activity_id)).pending == 0


async def test_unknown_send_is_pending_and_keeps_the_reservation(
    start_web: StartWeb, sale: Sale
) -> None:
    """Case 13: a time-out is never a failure."""
    web = await start_web(producer=ScriptedProducer(outcomes=[UNKNOWN]))

    reply = await web.buy(sale, "alice")

    assert reply.status == 202
    assert reply.json["status"] == "PENDING"
    assert sale.holders() == {"alice": reply.json["reservation_id"]}
    stats = gate().run(verbs.pending_stats(activity_id=sale.activity_id))
    assert (stats.pending, stats.open) == (1, 1)


@pytest.mark.parametrize("sale", [{"units": 1}], indirect=True)
async def test_sold_out(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    assert (await web.buy(sale, "alice")).status == 202

    reply = await web.buy(sale, "bob")

    assert (reply.status, reply.code) == (409, "SOLD_OUT")
    assert "come back" in reply.json["detail"]
    assert sale.gate_stock() == 0


async def test_already_reserved_names_the_first(start_web: StartWeb, sale: Sale) -> None:
    """Case 22: two tabs at once, another key each: one is held."""
    web = await start_web()
    first = await web.buy(sale, "alice", key="tab-1")

    second = await web.buy(sale, "alice", key="tab-2")

    assert (second.status, second.code) == (409, "ALREADY_RESERVED")
    assert second.json["reservation_id"] == first.json["reservation_id"]
    assert second.json["status_url"] == first.json["status_url"]
    assert sale.gate_stock() == 9


async def test_same_key_names_the_same_reservation(start_web: StartWeb, sale: Sale) -> None:
    producer = ScriptedProducer()
    web = await start_web(producer=producer)
    first = await web.buy(sale, "alice", key="k")

    second = await web.buy(sale, "alice", key="k")

    assert second.status == 202
    assert second.json["reservation_id"] == first.json["reservation_id"]
    assert second.json["valid_until"] == first.json["valid_until"]
    assert len(producer.sent) == 1


async def test_same_key_after_the_order_is_ordered(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    first = await web.buy(sale, "alice", key="k")
    gate().run(
        verbs.confirm(
            activity_id=sale.activity_id, items=[(sale.sku_id, first.json["reservation_id"])]
        )
    )

    second = await web.buy(sale, "alice", key="k")

    assert second.status == 202
    assert second.json["status"] == PublicStatus.ORDERED.value


@pytest.mark.parametrize("sale", [{"skus": 2}], indirect=True)
async def test_same_key_for_another_sku_conflicts(start_web: StartWeb, sale: Sale) -> None:
    """Case 23."""
    web = await start_web()
    await web.buy(sale, "alice", key="k")

    reply = await web.buy(sale, "alice", key="k", sku_id=sale.sku_ids[1])

    assert (reply.status, reply.code) == (409, "REQUEST_CONFLICT")
    assert sale.gate_stock(sale.sku_ids[1]) == 10


@pytest.mark.parametrize("sale", [{"limit_per_user": 3}], indirect=True)
async def test_same_key_with_another_quantity_conflicts(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    await web.buy(sale, "alice", key="k", quantity=2)

    reply = await web.buy(sale, "alice", key="k", quantity=3)

    assert (reply.status, reply.code) == (409, "REQUEST_CONFLICT")
    assert sale.gate_stock() == 8


@pytest.mark.parametrize("reason", ["NO_FINAL_STOCK", "RESERVATION_EXPIRED", "USER"])
async def test_ended_reservation_tells_its_reason(
    start_web: StartWeb, sale: Sale, reason: str
) -> None:
    web = await start_web()
    first = await web.buy(sale, "alice", key="k")
    release(sale, first.json["reservation_id"], "alice", reason=reason)

    reply = await web.buy(sale, "alice", key="k")

    assert (reply.status, reply.code) == (409, "RESERVATION_ENDED")
    assert reply.json["reason"] == reason
    assert sale.gate_stock() == 10


async def test_busy_at_the_limit_of_open_reservations(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    edit(sale, max_open=1)
    assert (await web.buy(sale, "alice")).status == 202

    reply = await web.buy(sale, "bob")

    assert (reply.status, reply.code) == (503, "BUSY")
    assert int(reply.headers["retry-after"]) >= 1
    assert sale.gate_stock() == 9


async def test_pending_limit_ends_an_outage_in_busy(start_web: StartWeb, sale: Sale) -> None:
    """Case 35, at the gate: unknown sends stop being accepted at max_pending."""
    web = await start_web(producer=ScriptedProducer(outcomes=[UNKNOWN] * 3))
    edit(sale, max_pending=2)

    replies = [await web.buy(sale, f"u{n}") for n in range(3)]

    assert [reply.status for reply in replies] == [202, 202, 503]
    assert replies[2].code == "BUSY"
    assert sale.gate_stock() == 8


async def test_not_started_and_ended(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    now = int(timezone.now().timestamp() * 1000)
    edit(sale, starts_ms=now + 60_000)
    early = await web.buy(sale, "alice")
    edit(sale, starts_ms=now - 2_000, ends_ms=now - 1_000)
    late = await web.buy(sale, "alice")

    assert (early.status, early.code) == (403, "NOT_STARTED")
    assert (late.status, late.code) == (403, "ENDED")
    assert sale.gate_stock() == 10


async def test_closed_still_answers_holders(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    first = await web.buy(sale, "alice", key="k")
    gate().run(
        verbs.close_gate(
            activity_id=sale.activity_id,
            sku_ids=sale.sku_ids,
            version=200,
            status=GateStatus.CLOSED,
        )
    )

    stranger = await web.buy(sale, "bob")
    holder = await web.buy(sale, "alice", key="k")

    assert (stranger.status, stranger.code) == (403, "CLOSED")
    assert holder.status == 202
    assert holder.json["reservation_id"] == first.json["reservation_id"]


async def test_limit_exceeded(start_web: StartWeb, sale: Sale) -> None:
    """Case 22: the limit holds at the gate, not in a form."""
    web = await start_web()

    reply = await web.buy(sale, "alice", quantity=200)

    assert (reply.status, reply.code) == (422, "LIMIT_EXCEEDED")
    assert sale.gate_stock() == 10


async def test_unknown_activity_and_sku_are_not_found(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    headers = {"Content-Type": "application/json", **bearer("alice")}
    for path in (
        f"/api/v1/activities/999999/skus/{sale.sku_id}/reservations",
        f"/api/v1/activities/{sale.activity_id}/skus/999999/reservations",
        "/api/v1/activities/0/skus/0/reservations",
        "/api/v1/activities/-1/skus/x/reservations",
        f"/api/v1/activities/{'9' * 40}/skus/1/reservations",
        "/api/v1/activities/\u0661/skus/1/reservations",
    ):
        reply = await web.request("POST", path, body=b'{"quantity":1}', headers=headers)
        assert (reply.status, reply.code) == (404, "NOT_FOUND"), path


async def test_draft_sale_is_not_found_and_warm_sale_has_not_started(
    unopened: tuple[Sale, Sale], start_web: StartWeb
) -> None:
    draft, warm = unopened
    web = await start_web()

    hidden = await web.buy(draft, "alice")
    waiting = await web.buy(warm, "alice")

    assert (hidden.status, hidden.code) == (404, "NOT_FOUND")
    assert (waiting.status, waiting.code) == (403, "NOT_STARTED")


async def test_lost_gate_fails_closed_and_is_never_sold_out(
    start_web: StartWeb, sale: Sale, redis_client: Any
) -> None:
    web = await start_web()
    redis_client.flushdb()

    reply = await web.buy(sale, "alice")

    assert (reply.status, reply.code) == (503, "GATE_LOST")
    assert "retry-after" in reply.headers
    assert redis_client.dbsize() == 0


async def test_sku_that_appears_later_is_found(start_web: StartWeb, sale: Sale) -> None:
    web = await start_web()
    assert (await web.buy(sale, "alice")).status == 202
    later = await in_thread(open_sale)

    async def accepted() -> bool:
        return (await web.buy(later, "alice")).status == 202

    await eventually(accepted, timeout_s=3, every_s=0.2)
