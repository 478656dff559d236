"""One seed from its sale to its verdict."""

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import structlog
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from chaos import rest
from chaos.buyers import Crowd
from chaos.catalogue import Excuse, may_lose_a_mail
from chaos.desk import Desk
from chaos.faults.inject import Injected, Injection, note_unused
from chaos.faults.provider import provider_call
from chaos.faults.scene import Scene
from chaos.faults.stores import redis_client
from chaos.machine import Machine
from chaos.plan import OperatorStep, Plan
from chaos.rebuild import rebuild
from inventory import keys, operations, selectors
from inventory.activities import NewSku, create_activity
from inventory.states import ActivityStatus
from orders import invariants
from orders.cancel_order import cancel_by_operator
from orders.errors import OrderStateConflict, SettlementRefused
from orders.settlement.settle import settle
from seckill.demo.rig import ADMIN

log = structlog.get_logger(__name__)

PRICE_CENTS: Final = 4_900
_LIST_AGE_S: Final = 1.2  # a web process reads its list of sales again at most once a second
_CROWD_S: Final = 45.0
_DESK_S: Final = 30.0
_FAULTS_S: Final = 60.0
_NEWCOMER_S: Final = 60.0
_TICKET_S: Final = 15.0
# The table refuses every change, also its owner's: only triggers that are off let one through.
_TAMPER: Final = """
BEGIN;
SET LOCAL session_replication_role = 'replica';
UPDATE dlq_admin_audit_event SET actor = 'nobody'
 WHERE id = (SELECT max(id) FROM dlq_admin_audit_event);
COMMIT;
"""
_UNPAID: Final = """
SELECT order_id FROM orders_order WHERE activity_id = %s AND status IN ('CREATED', 'PAYING')
"""


@dataclass(kw_only=True)
class Verdict:
    """What a seed came to."""

    seed: int
    faults: list[Injected] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    accepted: int = 0
    orders: int = 0
    rejected: int = 0
    codes: dict[str, int] = field(default_factory=dict)
    excused: dict[str, int] = field(default_factory=dict)
    rest_s: float = 0.0
    seconds: float = 0.0
    spent: dict[str, float] = field(default_factory=dict)  # where the seconds went
    breaches: list[str] = field(default_factory=list)


def run(machine: Machine, plan: Plan) -> Verdict:
    """Play a plan, wait for rest, check everything."""
    clock = Clock()
    verdict = Verdict(seed=plan.seed, spent=clock.spent)
    items_after = rest.newest_item()
    activity_id, sku_ids = _open_sale(plan)
    scene = Scene(machine=machine, activity_id=activity_id, sku_ids=sku_ids)
    crowd = _crowd(scene)
    desk = Desk(scene, plan, crowd)
    clock.note("open")
    _play(scene, plan, crowd, desk, verdict, clock)
    note_unused(scene, verdict.faults)
    _heal(scene)
    clock.note("heal")
    verdict.rest_s, left = rest.wait_for_rest(activity_id)
    verdict.breaches += [f"no rest within {rest.REST_S:.0f} s: {what}" for what in left]
    clock.note("rest")
    if not left:
        _newcomer(scene, crowd, verdict)
        waited, left = rest.wait_for_rest(activity_id)
        verdict.rest_s += waited
        verdict.breaches += [f"no rest after the newcomer: {what}" for what in left]
    desk.end()
    clock.note("newcomer")
    found, verdict.excused = rest.breaches(
        activity_id=activity_id,
        promised=crowd.told.promised,
        renewed=crowd.told.renewed,
        refused=crowd.told.refused,
        excuses=plan.excuses,
        items_after=items_after,
        returned_ms=scene.redis_returned_ms,
        copy_taken_ms=scene.copy_taken_ms,  # 0 after a Redis that lost everything
        clocks_off_ms=plan.web_clock_off_ms,
        mails_may_be_lost=any(
            may_lose_a_mail(one.fault.name, one.fault.target)
            for one in verdict.faults
            if not one.note
        ),
    )
    verdict.breaches += found + crowd.told.broken_rules
    for people in (machine.operator, machine.desk):
        verdict.breaches += people.crashes
        people.crashes.clear()
    _count(scene, crowd, verdict)
    clock.note("check")
    _settle(activity_id)
    clock.note("settle")
    verdict.seconds = sum(clock.spent.values())
    connection.close()
    return verdict


def _crowd(scene: Scene) -> Crowd:
    return Crowd(
        base_url=scene.machine.base_url,
        secret=scene.machine.environment["SECKILL_JWT_SECRET"],
        activity_id=scene.activity_id,
        sku_ids=scene.sku_ids,
    )


def _play(
    scene: Scene, plan: Plan, crowd: Crowd, desk: Desk, verdict: Verdict, clock: "Clock"
) -> None:
    """Let buyers, operators, the desk and the faults loose on the sale, until they are done."""
    opened_at = time.monotonic()
    injection = Injection(scene=scene, faults=plan.faults)
    desk.begin(opened_at)
    injection.begin(opened_at)
    crowd.begin((*plan.buyers, *desk.buyers()), opened_at)
    operators = threading.Thread(
        target=_operate, args=(scene, plan.operators, opened_at, verdict.operators), daemon=True
    )
    operators.start()
    if Excuse.LOSS in plan.excuses:
        verdict.breaches += rebuild(scene)
        clock.note("rebuild")
    crowd.end(timeout_s=_CROWD_S)
    clock.note("buyers")
    operators.join(_CROWD_S)
    if plan.hits_replay:
        desk.wait(_DESK_S)
        clock.note("desk")
    injection.end(timeout_s=_FAULTS_S)
    clock.note("faults")
    verdict.faults = injection.done


class Clock:
    """Where the seconds of a seed go."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self.spent: dict[str, float] = {}

    def note(self, what: str) -> None:
        """Book the time since the last note."""
        now = time.monotonic()
        self.spent[what], self._since = now - self._since, now


def prove(machine: Machine, plan: Plan) -> list[str]:
    """Tamper with a sale at rest and return what the check says: silence would be a blind check.

    Units appear at the gate and in the stock, a promise was never kept, a message dies and nobody
    deals with it, the gate forgets whom it has just promised a unit, and somebody writes over the
    console's audit record.
    """
    activity_id, sku_ids = _open_sale(plan)
    scene = Scene(machine=machine, activity_id=activity_id, sku_ids=sku_ids)
    rest.wait_for_rest(activity_id)
    forgot = _forget_a_buyer(scene)
    items_after = rest.newest_item()
    step = OperatorStep(at_s=0, verb="cut_off", units=1, sku=0)
    _do(scene, step.verb, step)
    _wait_for_ticket(activity_id)
    with redis_client(scene) as client:
        client.incr(f"seckill:{{{activity_id}}}:sku:{sku_ids[0]}:stock")
    scene.sql("UPDATE inventory_stock SET available = available + 2 WHERE sku_id = %s", sku_ids[0])
    scene.sql(_TAMPER)
    found, _ = rest.breaches(
        activity_id=activity_id,
        promised={"rsv_01M8NFNFWS5RRD1AMRCCV0TTTS": "QUEUED"},
        renewed=(),
        excuses=frozenset(),
        items_after=items_after,
        returned_ms=0,
        copy_taken_ms=0,
    )
    return forgot + found + [f"no rest: {what}" for what in rest.motion(activity_id)]


def _forget_a_buyer(scene: Scene) -> list[str]:
    """Take somebody whose order is seconds old out of the gate's buyers, and put him back.

    Returns:
        What the check says meanwhile.
    """
    crowd = _crowd(scene)
    user = f"fresh-{scene.activity_id}"
    status, body = crowd.buy(user, sku=0, quantity=1, key=f"k-{user}")
    if status != 202 or not _has_order(body["order_id"], within_s=_TICKET_S):
        return []
    key = keys.buyers(scene.activity_id, scene.sku_ids[0])
    with redis_client(scene) as client:
        held = client.hget(key, user)
        if held is None:
            return []
        client.hdel(key, user)
        try:
            report = invariants.check(scene.activity_id, young_ms=rest.YOUNG_MS)
        finally:
            client.hset(key, user, held)
    return [f"{breach.kind}: {', '.join(breach.samples[:3])}" for breach in report.breaches]


def _wait_for_ticket(activity_id: int) -> None:
    deadline = time.monotonic() + _TICKET_S
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM dlq_ticket WHERE activity_id = %s", [activity_id])
            if cursor.fetchone():
                return
        time.sleep(0.2)


def _open_sale(plan: Plan) -> tuple[int, tuple[int, ...]]:
    now = timezone.now()
    activity_id = create_activity(
        name=f"seed {plan.seed}",
        starts_at=now - timedelta(minutes=2),
        ends_at=now + timedelta(hours=2),
        validity_s=plan.validity_s,
        pay_window_s=plan.pay_window_s,
        max_pending=plan.max_pending,
        skus=[
            NewSku(
                name=f"thing {n}",
                price_cents=PRICE_CENTS,
                initial_units=plan.stock,
                limit_per_user=plan.limit_per_user,
            )
            for n in range(plan.skus)
        ],
    )
    operations.warm_up(activity_id=activity_id)
    operations.request_open(activity_id=activity_id, reason="fault search")
    record = selectors.activity_record(activity_id)
    assert record is not None  # noqa: S101 - made above
    time.sleep(_LIST_AGE_S)
    return activity_id, tuple(sku.sku_id for sku in record.skus)


def _operate(
    scene: Scene, steps: tuple[OperatorStep, ...], opened_at: float, told: list[str]
) -> None:
    """Do the operators' steps; what was paused or stopped is opened again a second later."""
    for step in sorted(steps, key=lambda one: one.at_s):
        time.sleep(max(0.0, opened_at + step.at_s - time.monotonic()))
        told.append(_do(scene, step.verb, step))
        back = {"pause": "resume", "stop": "open"}.get(step.verb)
        if back:
            time.sleep(1)
            told.append(_do(scene, back, step))


def _do(scene: Scene, verb: str, step: OperatorStep) -> str:
    """One step; when the operator's process dies, the same operation is asked for again."""
    operation_id = f"op_{scene.activity_id}_{verb}_{int(step.at_s * 100)}"
    for _ in range(3):
        answer = scene.machine.operator.do(
            verb,
            activity_id=scene.activity_id,
            sku_id=scene.sku_ids[step.sku],
            units=step.units,
            operation_id=operation_id,
        )
        if answer != "died" and "Error" not in answer.split(":")[0]:
            break
    return f"{verb}: {answer}"[:120]


def _heal(scene: Scene) -> None:
    """No fault any more: wires, clocks, points, servers, topics, provider as they should be."""
    machine = scene.machine
    machine.wires.heal_all()
    machine.reset_clocks()
    machine.wake_all()
    machine.stack.up()
    call_command("provision_broker", verbosity=0, stdout=_Nowhere())
    provider_call(scene, "DELETE", "/admin/faults")


class _Nowhere:
    """A stream that keeps nothing."""

    def write(self, text: str) -> int:
        """Throw it away."""
        return len(text)


def _newcomer(scene: Scene, crowd: Crowd, verdict: Verdict) -> None:
    """Everything works again without help: somebody new buys and gets his order."""
    record = selectors.activity_record(scene.activity_id)
    assert record is not None  # noqa: S101
    step = OperatorStep(at_s=99, verb="", units=3, sku=0)
    if record.status is ActivityStatus.PAUSED:
        verdict.operators.append(_do(scene, "resume", step))
    elif record.status is ActivityStatus.CLOSED:
        verdict.operators.append(_do(scene, "open", step))
    verdict.operators.append(_do(scene, "top_up", step))
    user, deadline = f"newcomer-{scene.activity_id}", time.monotonic() + _NEWCOMER_S
    status, body = 0, dict[str, Any]()
    while time.monotonic() < deadline:
        status, body = crowd.buy(user, sku=0, quantity=1, key=f"k-{user}")
        if status == 202:
            break
        time.sleep(0.5)
    else:
        verdict.breaches.append(f"a newcomer is not served: {status} {body.get('code', '')}")
        return
    if not _has_order(body["order_id"], within_s=deadline - time.monotonic()):
        verdict.breaches.append("a newcomer was accepted and has no order")


def _has_order(order_id: str, *, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM orders_order WHERE order_id = %s", [order_id])
            if cursor.fetchone():
                return True
        time.sleep(0.2)
    return False


def _count(scene: Scene, crowd: Crowd, verdict: Verdict) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT count(*) FROM orders_order WHERE activity_id = %(a)s),"
            " (SELECT count(*) FROM orders_reservation WHERE activity_id = %(a)s"
            " AND outcome = 'REJECTED')",
            {"a": scene.activity_id},
        )
        verdict.orders, verdict.rejected = cursor.fetchone()
    verdict.accepted = len(crowd.told.promised)
    verdict.codes = dict(sorted(crowd.told.codes.items()))


def _settle(activity_id: int) -> None:
    """Close the books where they can be closed: the next seed's faults leave this sale alone."""
    user = get_user_model().objects.get(username=ADMIN)
    with connection.cursor() as cursor:
        cursor.execute(_UNPAID, [activity_id])
        unpaid = [row[0] for row in cursor.fetchall()]
    for order_id in unpaid:
        with suppress(OrderStateConflict):
            cancel_by_operator(order_id=order_id, user=user, reason="the seed is over")
    rest.wait_for_rest(activity_id)
    try:
        operations.request_close(activity_id=activity_id, reason="fault search")
        settle(activity_id=activity_id, reason="fault search", user=user)
    except SettlementRefused as refused:
        log.info("sale_stays_open", activity_id=activity_id, reasons=refused.args)
