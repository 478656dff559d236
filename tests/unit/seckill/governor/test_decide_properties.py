"""Whatever the signals: bounded, sane, monotone steps, and it always comes back."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from messaging.topology import CG_INVENTORY_COMPENSATE, CG_ORDER_CREATE, enabled_groups
from seckill.governor.decide import decide
from seckill.governor.memory import Means, Memory
from seckill.governor.signals import SaleSignals, Signals
from seckill.governor.view import Level, decode, encode

GROUPS = tuple((group.name, group.core) for group in enabled_groups())
CORE = [name for name, core in GROUPS if core]

numbers = st.floats(0, 1e6, allow_nan=False)
signals = st.builds(
    Signals,
    lag_s=st.one_of(st.floats(0, 5), numbers),
    backlog=st.integers(0, 10**6),
    arrival_per_s=numbers,
    drain_per_s=numbers,
    busy_per_s=numbers,
    instances=st.integers(0, 30),
    waiting=st.booleans(),
    receiving=st.booleans(),
    tx_p99_ms=numbers,
    pool_wait_p95_ms=numbers,
    pending_oldest_s=st.floats(0, 10),
    active=st.integers(0, 500),
    lock_waits=st.integers(0, 500),
    wal_waits=st.integers(0, 500),
    database_age_s=st.floats(0, 20),
    sales=st.dictionaries(
        st.integers(1, 3),
        st.builds(SaleSignals, open=st.integers(0, 10**5), expiring=st.integers(0, 100)),
        max_size=3,
    ),
)
means = st.builds(
    Means,
    groups=st.just(GROUPS),
    order_group=st.just(CG_ORDER_CREATE),
    compensate_group=st.just(CG_INVENTORY_COMPENSATE),
    safe_transactions=st.integers(1, 500),
    workers_max=st.integers(1, 40),
    batch_max=st.integers(1, 256),
    entry_rate=st.sampled_from([0.0, 1.0, 5_000.0]),
    drain_per_s=st.sampled_from([0.0, 4_000.0]),
)


@settings(max_examples=60)
@given(st.lists(signals, min_size=1, max_size=20), means)
def test_every_decision_is_sane(seconds: list[Signals], by: Means):
    memory, now_s, before = Memory(), 0.0, None
    for seen in seconds:
        now_s += 1.0
        view, memory = decide(seen, memory, means=by, now_s=now_s)
        # it can be published and read
        stamped = replace(view, decided_at_ms=1)
        assert decode(encode(stamped)) is not None
        # the budget holds, whatever lags
        orders = view.pace(CG_ORDER_CREATE)
        most = max(
            1, min(int(0.7 * by.safe_transactions) // max(1, seen.instances), by.workers_max)
        )
        assert 1 <= orders.workers <= most
        assert 1 <= orders.batch <= by.batch_max
        # core groups never stop
        assert all(view.pace(name).workers >= 1 for name in CORE)
        # the operators' limit holds; nothing but FAIL_CLOSED and NORMAL is without a rate
        if by.entry_rate and view.level is not Level.FAIL_CLOSED:
            assert 0 < view.entry_rate <= by.entry_rate
        if view.level in {Level.RAMP, Level.THROTTLE, Level.HOLD}:
            assert view.entry_rate > 0
        if before is Level.FAIL_CLOSED:
            assert view.level is not Level.NORMAL  # never from nothing to all
        assert view.reasons
        before = view.level


@settings(max_examples=40)
@given(st.lists(signals, max_size=12), means)
def test_it_recovers_by_itself(trouble: list[Signals], by: Means):
    memory, now_s = Memory(), 0.0
    for seen in trouble:
        now_s += 1.0
        _, memory = decide(seen, memory, means=by, now_s=now_s)
    for _ in range(70):
        now_s += 1.0
        view, memory = decide(Signals(instances=2), memory, means=by, now_s=now_s)
    assert view.level is Level.NORMAL
    assert view.pace(CG_ORDER_CREATE).batch == by.batch_max


@settings(max_examples=60)
@given(st.lists(signals, min_size=2, max_size=20), means)
def test_consumers_never_jump_up(seconds: list[Signals], by: Means):
    """At most a tenth of the budget (or one loop) in 5 s; more only when processes joined."""
    memory, now_s = Memory(), 0.0
    stepped, before = None, None
    for seen in seconds:
        seen = replace(seen, instances=4)
        now_s += 1.0
        _, memory = decide(seen, memory, means=by, now_s=now_s)
        if before is not None and memory.workers > before + 1e-9:
            step = max(1.0, 0.1 * max(1, int(by.safe_transactions * 0.7)))
            assert memory.workers - before <= step + 1e-6
            assert stepped is None or now_s - stepped >= 5.0
            stepped = now_s
        before = memory.workers
