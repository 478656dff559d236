"""The scanner's loop: what is away costs rounds, never the loop; told to stop, it stops."""

import threading
import time

import pytest

from inventory.errors import GateUnavailable
from messaging.pulse import LoopState, Pulse
from messaging.topology import enabled_groups
from orders.scan import payments, refunds, runner
from seckill.bootstrap import handlers


class Job:
    name = "test"
    tick_s = 0.001

    def __init__(self, *results):
        self.results = list(results)
        self.rounds = 0
        self.closed = False
        self.done = threading.Event()

    def run_once(self):
        self.rounds += 1
        result = self.results.pop(0) if self.results else 0
        if not self.results:
            self.done.set()
        if isinstance(result, Exception):
            raise result
        return result

    def close(self):
        self.closed = True


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(runner, "close_old_connections", lambda: None)
    monkeypatch.setattr(runner, "connection", type("C", (), {"close": staticmethod(lambda: None)}))

    def start(job):
        stop, pulse = threading.Event(), Pulse()
        thread = threading.Thread(target=runner.run_job, args=(job, stop, pulse))
        thread.start()
        assert job.done.wait(5)
        stop.set()
        thread.join(5)
        assert not thread.is_alive()
        return pulse

    return start


@pytest.mark.parametrize("error", [GateUnavailable("away"), ValueError("a bug")])
def test_a_failed_round_is_followed_by_the_next(run, error):
    job = Job(1, error, error, 2)
    pulse = run(job)
    assert job.rounds >= 4
    assert job.closed
    assert pulse.snapshot()[0] is LoopState.RUNNING


def test_told_to_stop_it_does_not_wait_for_its_tick(run):
    job = Job(1)
    job.tick_s = 60
    started = time.monotonic()
    run(job)
    assert time.monotonic() - started < 5
    assert job.closed


def test_after_a_full_round_the_next_begins_at_once(run):
    job = Job(20, 20, 0)
    job.tick_s = 60
    job.has_more = True

    run(job)

    assert job.rounds >= 3


def test_the_jobs_of_money_know_when_a_round_was_full(monkeypatch):
    for module in (payments, refunds):
        done = iter([module.BATCH, 3])
        monkeypatch.setattr(module, "drive_due", lambda *_, done=done: next(done))
    for job in (payments.PaymentsJob(), refunds.RefundsJob()):
        assert isinstance(job, runner.EagerJob)
        assert [job.has_more, job.run_once(), job.has_more] == [False, 20, True]
        assert [job.run_once(), job.has_more] == [3, False]


def test_a_long_tick_is_no_hang(monkeypatch):
    """The watchdog ended a healthy scanner each minute: the job for held reservations ticks so."""
    monkeypatch.setattr(runner, "_TOUCH_S", 0.01)
    touches = []
    stop, pulse = threading.Event(), Pulse()
    monkeypatch.setattr(pulse, "touch", lambda: touches.append(1) or len(touches) < 5 or stop.set())

    runner._wait(stop, pulse, 60)

    assert len(touches) == 5


@pytest.mark.parametrize("result", [1, GateUnavailable("away")], ids=["tick", "back-off"])
def test_a_job_that_waits_for_long_touches_its_pulse(monkeypatch, result):
    monkeypatch.setattr(runner, "_TOUCH_S", 0.01)
    monkeypatch.setattr(runner, "close_old_connections", lambda: None)
    monkeypatch.setattr(runner, "connection", type("C", (), {"close": staticmethod(lambda: None)}))
    monkeypatch.setattr(runner.Backoff, "next_s", lambda self: 60.0)
    job, stop, pulse, touches = Job(result), threading.Event(), Pulse(), []
    job.tick_s = 60
    monkeypatch.setattr(pulse, "touch", lambda: touches.append(1) or len(touches) < 5 or stop.set())
    thread = threading.Thread(target=runner.run_job, args=(job, stop, pulse))

    thread.start()
    thread.join(5)
    alive = thread.is_alive()
    stop.set()
    thread.join(5)

    assert not alive
    assert (job.rounds, len(touches)) == (1, 5)


def test_no_wait_of_a_job_is_longer_than_the_watchdogs_patience(settings):
    assert 3 * runner._TOUCH_S < settings.SECKILL_WATCHDOG_S


def test_every_job_of_the_specification_is_there():
    assert {"pending", "sweep", "overdue", "release", "gate_ops"} <= set(runner.JOBS)


def test_every_enabled_group_has_its_handler():
    assert set(handlers()) == {group.name for group in enabled_groups()}
