"""One governor leads; decisions are published, stored once, shown, and kept for some days."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone
from prometheus_client import REGISTRY

from inventory.errors import GateUnavailable
from inventory.gate import gate
from messaging.pulse import LoopState, Pulse
from messaging.topology import CG_ORDER_CREATE
from messaging.worker import StopSignal
from seckill.governor import history, store
from seckill.governor import loop as governor_loop
from seckill.governor.history import Decided
from seckill.governor.loop import Governor
from seckill.governor.models import GovernorDecision
from seckill.governor.sampler import Sampler
from seckill.governor.signals import SaleSignals, Signals
from seckill.governor.view import Level, decode
from tests.integration.governor.views import view

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


class Told(Sampler):
    """Senses that the test sets; what is stored is kept."""

    def __init__(self, signals: Signals | None = None) -> None:
        super().__init__()
        self.signals = signals or Signals(instances=2)
        self.stored: list[Decided] = []

    def look(self) -> Signals:
        return self.signals

    def write(self, decision: Decided) -> None:
        self.stored.append(decision)


def published() -> Any:
    found = gate().run(store.read()).decision
    return None if found is None else decode(found)


def test_one_leads_the_other_stands_by_and_follows_when_it_resigns() -> None:
    first, second, pulse = Governor(Told()), Governor(Told()), Pulse()

    first.turn(pulse)
    second.turn(pulse)
    assert gate().run(store.leader()) == first.name
    assert pulse.snapshot()[1]["leads"] is False

    first._resign()
    second.turn(pulse)
    assert gate().run(store.leader()) == second.name
    assert pulse.snapshot()[1]["leads"] is True


def test_a_killed_leader_is_followed_when_its_lead_runs_out(
    redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(governor_loop, "_LEAD_MS", 50)
    dead, heir, pulse = Governor(Told()), Governor(Told()), Pulse()
    dead.turn(pulse)
    assert 0 < redis_client.pttl(store.DECISION) <= 3_000
    while redis_client.exists(store.LEADER):
        pass

    heir.turn(pulse)

    assert gate().run(store.leader()) == heir.name
    # one whose lead was lost steps down instead of fighting for it
    monkeypatch.setattr(governor_loop, "_LEAD_MS", 3_000)
    heir.turn(pulse)
    dead.turn(pulse)
    assert gate().run(store.leader()) == heir.name


def exported(name: str) -> dict[str, float]:
    """Return the samples of a gauge that this process exports, by label; "" without one."""
    return {
        "".join(sample.labels.values()): sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == name
    }


@pytest.mark.parametrize("how", ["another leads", "Redis is away", "it stops"])
def test_one_that_leads_no_more_says_so_and_exports_nothing_of_its_last_decision(
    how: str, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: a leader that decided on THROTTLE
    signals = Signals(
        instances=2,
        lag_s=3.0,
        busy_per_s=100.0,
        sales={7: SaleSignals(open=9, expiring=3)},
    )
    governor, pulse = Governor(Told(signals)), Pulse()
    governor.turn(pulse)
    assert exported("seckill_governor_leads") == {"": 1}
    assert exported("seckill_governor_level")[""] >= 2
    assert exported("seckill_governor_entry_rate")[""] > 0
    assert exported("seckill_governor_workers")[CG_ORDER_CREATE] >= 1
    assert exported("reservation_expiring") == {"7": 3}

    # when
    match how:
        case "another leads":
            redis_client.set(store.LEADER, "another")
            governor.turn(pulse)
        case "Redis is away":

            def away(call: object) -> object:
                raise GateUnavailable("gone")

            with monkeypatch.context() as patch:
                patch.setattr(gate(), "run", away)
                governor.turn(pulse)
        case _:
            governor._resign()

    # then
    assert exported("seckill_governor_leads") == {"": 0}
    for gauge in ("level", "entry_rate", "capacity"):
        assert exported(f"seckill_governor_{gauge}") == {"": 0}
    assert exported("seckill_governor_workers") == exported("reservation_expiring") == {}

    # and: it tells again when it leads again
    redis_client.delete(store.LEADER)
    governor.turn(pulse)
    assert exported("seckill_governor_leads") == {"": 1}
    assert exported("reservation_expiring") == {"7": 3}


def test_what_changes_is_published_at_once_and_stored_once() -> None:
    sampler = Told()
    governor, pulse = Governor(sampler), Pulse()
    for _ in range(3):
        governor.turn(pulse)
    assert published().level is Level.NORMAL
    assert len(sampler.stored) == 1

    sampler.signals = Signals(instances=2, database_age_s=4.0)
    for _ in range(3):
        governor.turn(pulse)

    assert published().level is Level.THROTTLE
    assert [(d.before, d.view.level) for d in sampler.stored] == [
        ("NORMAL", Level.NORMAL),
        ("NORMAL", Level.THROTTLE),
    ]
    assert sampler.stored[1].view.reasons[0].startswith("DATABASE_STALLED")


def test_redis_that_is_away_costs_turns_never_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    governor, pulse = Governor(Told()), Pulse()
    governor.turn(pulse)

    def away(call: object) -> object:
        raise GateUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(gate(), "run", away)
        governor.turn(pulse)
        assert pulse.snapshot()[0] is LoopState.WAITING
    governor.turn(pulse)
    assert pulse.snapshot()[0] is LoopState.RUNNING


def test_the_real_thing_looks_decides_and_stores() -> None:
    """Real database, real Redis, no consumer: one turn of `run_governor --once`."""
    stop, pulse = StopSignal(), Pulse()
    Governor().run(stop, pulse, once=True)

    assert published().level is Level.NORMAL
    (row,) = history.recent()
    assert (row.level, row.before, row.reasons) == ("NORMAL", "NORMAL", ("ALL_WELL",))
    assert row.signals["instances"] == 0
    assert gate().run(store.leader()) == ""


def test_history_newest_first_and_only_changes_of_level() -> None:
    now_ms = int(timezone.now().timestamp() * 1000)
    for place, (before, level) in enumerate(
        [("NORMAL", Level.NORMAL), ("NORMAL", Level.HOLD), ("HOLD", Level.HOLD)]
    ):
        history.store(
            Decided(
                view=view(level=level, decided_at_ms=now_ms + place, reasons=("A: 1", "B")),
                before=before,
                leader="x",
            )
        )
    assert [row.level for row in history.recent(2)] == ["HOLD", "HOLD"]
    (change,) = history.recent(only_levels=True)
    assert (change.before, change.level, change.reasons) == ("NORMAL", "HOLD", ("A: 1", "B"))


def test_decisions_are_deleted_after_their_days(settings: Any) -> None:
    settings.SECKILL_GOVERNOR_DAYS = 14
    now = timezone.now()
    for days in (15, 13, 0):
        at_ms = int((now - timedelta(days=days)).timestamp() * 1000)
        history.store(Decided(view=view(decided_at_ms=at_ms), before="NORMAL", leader="x"))

    assert history.delete_old() == 1
    assert history.delete_old() == 0
    assert GovernorDecision.objects.count() == 2


def test_admin_shows_decisions_and_lets_nobody_change_them() -> None:
    history.store(
        Decided(
            view=view(level=Level.HOLD, reasons=("BROKER_AWAY: x <b>",)), before="RAMP", leader="x"
        )
    )
    row = GovernorDecision.objects.get()
    user = get_user_model().objects.create_superuser("root", password="x")
    client = Client()
    client.force_login(user)

    listed = client.get("/admin/seckill/governordecision/").content.decode()
    shown = client.get(f"/admin/seckill/governordecision/{row.pk}/change/").content.decode()

    assert "BROKER_AWAY: x &lt;b&gt;" in listed
    assert CG_ORDER_CREATE in shown
    assert client.get("/admin/seckill/governordecision/add/").status_code == 403
    deletion = client.post(f"/admin/seckill/governordecision/{row.pk}/delete/", {"post": "yes"})
    assert deletion.status_code == 403
    assert GovernorDecision.objects.count() == 1
