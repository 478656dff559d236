"""The senses, on real stores: what they see is what is there."""

import threading
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from inventory import keys
from inventory.contracts import Reservation
from inventory.errors import GateUnavailable
from inventory.gate import gate
from messaging import broker_metrics, quarantine
from messaging.broker_metrics import BrokerBacklog
from messaging.heartbeat import Heartbeats
from messaging.pulse import LoopState, Pulse
from messaging.topology import CG_AUDIT, CG_ORDER_CREATE
from seckill.governor.database_samples import DatabaseSampler
from seckill.governor.decide import decide
from seckill.governor.gate_samples import GateSampler
from seckill.governor.loop import means_of_settings
from seckill.governor.memory import Memory
from seckill.governor.sampler import Sampler
from seckill.governor.signals import Signals
from seckill.governor.view import Level
from tests.fixtures.loops import OneTurn
from tests.fixtures.sales import Sale, open_sale
from tests.fixtures.sql import execute, rows
from tests.integration.governor.views import poll, view

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def dsn() -> str:
    connection.ensure_connection()
    raw: Any = connection.connection
    return f"{raw.info.dsn} password={raw.info.password}"


def beat(worker: str, state: str, detail: str, *, age_s: float = 0) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            'INSERT INTO messaging_heartbeat (worker_id, role, "group", build, version, started_at,'
            " beat_at, state, detail) VALUES (%s, 'consumer', 'CG_SECKILL_ORDER_CREATE_PG_V1', 1,"
            " '', now(), now() - %s * interval '1 second', %s, %s::jsonb)",
            [worker, age_s, state, detail],
        )


def test_lock_waits_and_wal_are_seen() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE governor_probe (id int PRIMARY KEY, n int)")
        cursor.execute("INSERT INTO governor_probe SELECT i, 0 FROM generate_series(1, 2) i")
    sampler = DatabaseSampler()
    first = sampler.sample()
    where = dsn()
    holder = psycopg.connect(where)
    holder.execute("UPDATE governor_probe SET n = 1 WHERE id = 1")

    def wait() -> None:
        with psycopg.connect(where) as waiter:
            waiter.execute("UPDATE governor_probe SET n = 2 WHERE id = 1")

    threads = [threading.Thread(target=wait) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        poll(lambda: sampler.sample().lock_waits == 2)
    finally:
        holder.rollback()
        holder.close()
        for thread in threads:
            thread.join()
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE governor_probe")
    assert first.lock_waits == 0
    second = sampler.sample()
    assert second.wal_per_s > 0
    assert second.replication_lag_s == 0


def test_consumers_are_counted_by_process_and_their_worst_numbers_count() -> None:
    beat("h:1:consumer/order-create", "RUNNING", '{"lag_s": 0.5, "drain_per_s": 100, "batch": 128}')
    beat(
        "h:1:consumer/order-create-2",
        "RUNNING",
        '{"lag_s": 9, "drain_per_s": 9, "batch": 0, "pool_wait_p95_ms": 900}',
    )
    beat(
        "h:2:consumer/order-create",
        "RUNNING",
        '{"lag_s": 1.5, "drain_per_s": 50, "batch": 128, "busy_per_s": 70, "tx_p99_ms": 44,'
        ' "pool_wait_p95_ms": 3.5, "receiving": true}',
    )
    beat("h:3:consumer/order-create", "RUNNING", '{"lag_s": 99}', age_s=11)
    beat("h:4:consumer/order-create", "STOPPED", '{"lag_s": 99}')
    sampler = Sampler()
    sampler.database.latest = sampler.database.sample()

    seen = sampler.look()

    assert seen.instances == 2
    assert (seen.lag_s, seen.drain_per_s, seen.busy_per_s) == (1.5, 150, 70)
    assert (seen.tx_p99_ms, seen.pool_wait_p95_ms) == (44, 3.5)
    assert seen.receiving
    assert not seen.waiting


@pytest.mark.parametrize(
    "detail",
    [
        "{}",
        '{"lag_s": "much", "drain_per_s": null, "batch": "all", "receiving": "x"}',
        '{"lag_s": -5, "drain_per_s": true, "busy_per_s": [1]}',
        '{"lag_s": 1e308, "tx_p99_ms": {"a": 1}}',
    ],
)
def test_what_a_broken_worker_says_of_itself_breaks_nothing(detail: str) -> None:
    beat("h:1:consumer/order-create", "RUNNING", detail)
    sampler = Sampler()
    sampler.database.latest = sampler.database.sample()
    seen = sampler.look()
    assert seen.instances == 1
    assert seen.drain_per_s == 0
    assert seen.lag_s >= 0


def test_loops_that_wait_for_a_store_and_a_broker_that_is_away() -> None:
    beat("h:1:consumer/a", LoopState.WAITING, '{"receiving": false}')
    sampler = Sampler()
    sampler.database.latest = sampler.database.sample()
    seen = sampler.look()
    assert seen.waiting
    assert not seen.receiving


def test_what_the_broker_holds_is_told_by_the_senders_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given: the sender's loop that asks the broker's exporter, a turn at a time
    answer = {CG_ORDER_CREATE: BrokerBacklog(lag=10, ready=4, in_flight=6, oldest_s=1.5)}
    asked: list[dict[str, BrokerBacklog] | None] = [answer]
    monkeypatch.setattr(broker_metrics, "publish_backlogs", lambda: asked[0])
    pulse = Pulse()
    heartbeats = Heartbeats(role="sender", members=[("broker-gauges", "", pulse)])
    sampler = Sampler()

    def told(answer: dict[str, BrokerBacklog] | None) -> None:
        asked[0] = answer
        broker_metrics.keep_backlogs(OneTurn(), pulse)
        heartbeats.beat()

    def seen() -> tuple[int | None, int | None]:
        sampler.database.latest = sampler.database.sample()
        found = sampler.look()
        return found.ready, found.in_flight

    # when nobody told anything, when it was told, when the exporter forgot the group or is away
    assert seen() == (None, None)
    told(answer)
    assert seen() == (4, 6)
    told({CG_AUDIT: answer[CG_ORDER_CREATE]})
    assert seen() == (None, None)
    told(answer)
    told(None)
    assert seen() == (None, None)

    # and: what a foreign sender wrote is nothing
    for odd in (f'{{"{CG_ORDER_CREATE}": "x"}}', f'"{CG_ORDER_CREATE}"', f'["{CG_ORDER_CREATE}"]'):
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE messaging_heartbeat SET detail = jsonb_build_object('backlogs', %s::jsonb)",
                [odd],
            )
        assert seen() == (None, None)

    # and: a sender that fell silent says nothing any more
    told(answer)
    assert seen() == (4, 6)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE messaging_heartbeat SET beat_at = now() - interval '11 seconds'")
    assert seen() == (None, None)


def test_the_gate_tells_what_is_open_pending_expiring_and_accepted(redis_client: Any) -> None:
    now = redis_client.time()
    now_ms = now[0] * 1000
    redis_client.zadd(
        keys.open_reservations(5), {"a": now_ms + 299_000, "b": now_ms + 1_000, "c": now_ms - 1_000}
    )
    redis_client.zadd(keys.mq_pending(5), {"a": now_ms - 2_000, "b": now_ms + 9_000})
    redis_client.hset(keys.answers(5), mapping={"QUEUED": 10, "PENDING": 2, "SOLD_OUT": 99})
    sampler = GateSampler()

    first = sampler.sample({5: 300_000, 6: 300_000}, {})
    assert first is not None
    assert first.sales[5].open == first.backlog == 3
    assert (first.sales[5].pending, first.sales[5].expiring) == (2, 2)
    assert 2.0 <= first.pending_oldest_s < 10
    assert first.sales[6].open == 0

    redis_client.hset(keys.answers(5), "QUEUED", 110)
    second = sampler.sample({5: 300_000}, {})
    assert second is not None
    assert second.arrival_per_s > 0
    # counters that began anew are no negative rate
    redis_client.delete(keys.answers(5))
    third = sampler.sample({5: 300_000}, {})
    assert third is not None
    assert third.arrival_per_s == 0


def age(redis_client: Any, sale: Sale, *reservations: Reservation, left_ms: int) -> None:
    """Let open reservations have so much of their validity left."""
    seconds, _ = redis_client.time()
    redis_client.zadd(
        keys.open_reservations(sale.activity_id),
        {one.reservation_id: seconds * 1000 + left_ms for one in reservations},
        xx=True,
    )


def look() -> Signals:
    sampler = Sampler()
    sampler.database.latest = sampler.database.sample()
    return sampler.look()


def test_held_reservations_are_no_backlog_near_its_end(redis_client: Any) -> None:
    # given: three near their end, of which two are held, one of them long past it
    sale, other = open_sale(), open_sale()
    past, held, waits, fresh = sale.reserve_all(["a", "b", "c", "d"])
    (elsewhere,) = other.reserve_all(["a"])
    age(redis_client, sale, held, waits, left_ms=60_000)
    age(redis_client, sale, past, left_ms=-86_400_000)
    age(redis_client, other, elsewhere, left_ms=60_000)
    assert look().sales[sale.activity_id].expiring == 3

    # when
    sale.hold(past)
    sale.hold(held)

    # then: of the one sale; the other's numbers stay, and nothing else changes
    seen = look()
    assert (seen.sales[sale.activity_id].expiring, seen.sales[sale.activity_id].open) == (1, 4)
    assert seen.sales[other.activity_id].expiring == 1

    # and: a held one that is fresh, or not open any more, is no reason to count one less
    sale.hold(fresh)
    redis_client.zrem(keys.open_reservations(sale.activity_id), past.reservation_id)
    assert look().sales[sale.activity_id].expiring == 1

    # and: a second row of the same reservation counts it once; one that is resolved counts no more
    execute(
        "INSERT INTO messaging_quarantine (consumer_group, message_id, source, status, topic, tag,"
        " keys, properties, body, body_sha256, reason, error, delivery_attempt, occurrences,"
        " reservation_id, activity_id, resolution) VALUES (%s, %s, 'CONSUMER', 'OPEN', '', '', '',"
        " '{}', '', 'x', 'BUG', '', 1, 1, %s, %s, '')",
        *(CG_ORDER_CREATE, held.message_id, held.reservation_id, sale.activity_id),
    )
    assert look().sales[sale.activity_id].expiring == 1
    quarantine.resolve(group=CG_ORDER_CREATE, message_ids=[held.message_id], resolution="ORDERED")
    assert look().sales[sale.activity_id].expiring == 2


def test_one_held_reservation_turns_no_lag_into_a_closed_door(redis_client: Any) -> None:
    # given: consumers without headroom that lag by a second, and one held reservation
    beat("h:1:consumer/order-create", "RUNNING", '{"lag_s": 1.2, "busy_per_s": 100}')
    sale = open_sale()
    (held,) = sale.reserve_all(["a"])
    sale.hold(held)
    age(redis_client, sale, held, left_ms=-86_400_000)
    means = replace(means_of_settings(), workers=2, workers_max=2)

    # when, then: what lags is throttled, and nothing is said to expire
    seen = look()
    assert decide(seen, Memory(), means=means, now_s=1.0)[0].level is Level.THROTTLE
    assert seen.expiring == 0

    # and: one that waits for a consumer closes the door
    (waits,) = sale.reserve_all(["b"])
    age(redis_client, sale, waits, left_ms=60_000)
    assert decide(look(), Memory(), means=means, now_s=1.0)[0].level is Level.FAIL_CLOSED


def test_when_the_database_is_silent_what_was_held_still_counts_as_held(redis_client: Any) -> None:
    sale = open_sale()
    held, waits = sale.reserve_all(["a", "b"])
    sale.hold(held)
    sampler = Sampler()
    sampler.database.latest = replace(sampler.database.sample(), at_s=0.0)
    age(redis_client, sale, held, waits, left_ms=60_000)
    assert sampler.look().expiring == 1


def test_silent_stores_show_by_their_age(monkeypatch: pytest.MonkeyPatch) -> None:
    open_sale()
    sampler = Sampler()
    sampler.database.latest = sampler.database.sample()

    def away(call: object) -> object:
        raise GateUnavailable("gone")

    monkeypatch.setattr(gate(), "run", away)
    sampler.database.started_s -= 100
    sampler._gate_at_s -= 50
    seen = sampler.look()
    assert seen.gate_age_s >= 50
    assert seen.database_age_s < 5
    sampler.database.latest = None
    assert sampler.look().database_age_s >= 100


def test_decisions_wait_for_a_database_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    from seckill.governor import history
    from seckill.governor.history import Decided

    sampler = DatabaseSampler()
    for number in range(200):
        sampler.write(Decided(view=view(decided_at_ms=1_000 + number), before="HOLD", leader="x"))
    with monkeypatch.context() as patch:
        patch.setattr(history, "store", _away)
        with pytest.raises(OperationalError):
            sampler.flush()
    sampler.flush()
    stored = rows(
        "SELECT count(*), min(decided_at), max(decided_at) FROM seckill_governor_decision"
    )
    assert stored[0][0] == 120  # bounded: the oldest were dropped
    assert stored[0][2].timestamp() == pytest.approx(1.199)


def _away(decision: object) -> None:
    from django.db import OperationalError

    raise OperationalError("gone")


def test_calibration_measures_recommends_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import io

    out = io.StringIO()
    call_command("calibrate_budget", "--seconds", "0.2", "--most", "3", "--batch", "8", stdout=out)
    text = out.getvalue()
    assert "◀ knee" in text
    assert "set SECKILL_SAFE_TRANSACTIONS=" in text
    assert "   1 at a time:" in text
    assert rows("SELECT count(*) FROM pg_namespace WHERE nspname = 'seckill_calibration'") == [(0,)]


def test_calibration_refuses_while_a_sale_is_open() -> None:
    from django.core.management.base import CommandError

    open_sale()
    with pytest.raises(CommandError, match="a sale is open"):
        call_command("calibrate_budget")
    assert rows("SELECT count(*) FROM pg_namespace WHERE nspname = 'seckill_calibration'") == [(0,)]
