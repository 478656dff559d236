"""The parts of one web process, their start and their end; `seckill/asgi.py` is its entry."""

import asyncio
import gc
import os
import secrets
import socket
import sys
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import structlog
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler

import telemetry
from inventory import selectors, verbs
from inventory.admission_rules import RulesSnapshot, rules_mark, rules_snapshot
from inventory.contracts import GateState, Reservation
from inventory.errors import GateUnavailable, InventoryError
from inventory.gate import AsyncGate
from inventory.holders import read_holders
from inventory.states import ActivityStatus
from inventory.watch import count_answers
from messaging.broker import broker
from messaging.broker.base import AsyncProducer
from orders.selectors import reservation_status
from seckill import warmth
from seckill.admission import metrics
from seckill.admission.app import Admission, hot_target
from seckill.admission.breaker import Breaker
from seckill.admission.catalogue import Catalogue, CatalogueEntry, Key
from seckill.admission.database import DatabaseThreads
from seckill.admission.limits import KnownKeys
from seckill.admission.problems import ready
from seckill.admission.purchase import Purchases
from seckill.admission.rules import REFRESH_S, Rules
from seckill.admission.soldout import SoldOut
from seckill.admission.tokens import verifier
from seckill.api.events import StatusStreams, stream_target
from seckill.api.health import healthz
from seckill.governor.entry import EntryLimits
from seckill.monitor.stream import PATH as MONITOR_PATH
from seckill.monitor.stream import MonitorStreams
from seckill.site import WATCHING, Site, answer
from seckill.stop_signal import on_sigterm

log = structlog.get_logger(__name__)

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_SITE_LANES: Final = 8
# A call of the provider may take 3 s: pages, webhooks and the emergency stop go on meanwhile.
_PAYING_LANES: Final = 3
# Sales of these numbers lie on every shard of any cluster that one would run.
_SALES_TRIED: Final = 16
# How long buyers of a sale without a gate wait to learn why.
_WHY_S: Final = 1.0
# Every call of a batch has a deadline far below this; SIGTERM's grace is 10 s.
_DRAIN_S: Final = 5.0
# Python's default of 5 ms lets one busy thread of the site eat an eighth of the send budget.
_SWITCH_INTERVAL_S: Final = 0.001


class WebProcess:
    """An ASGI application. Builds its parts at start-up, in the event loop that will use them.

    Args:
        make_parts: builds the parts; tests put their own gate or producer in.
    """

    def __init__(self, make_parts: "Callable[[], Parts] | None" = None) -> None:
        self._role = settings.SECKILL_WEB_ROLE
        self._make_parts = make_parts or Parts
        self._running: Parts | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route one connection."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        path = scope["path"]
        if path == "/healthz":
            # Waits for nothing that can be full or away: a container is restarted by it.
            await answer(send, healthz(scope["method"]))
            return
        parts = self._running
        if parts is None:
            parts = await self.start()  # a server without lifespan
        target = hot_target(path)
        if target is not None:
            if self._role != "site":
                await parts.admission(scope, receive, send, target)
                return
        elif self._role != "admission":
            stream = stream_target(path)
            if stream is not None:
                parts.expect_stop()
                await parts.streams(scope, receive, send, stream)
            elif path == MONITOR_PATH:
                parts.expect_stop()
                await parts.monitor(scope, receive, send)
            else:
                await parts.site(scope, receive, send)
            return
        elif path in WATCHING:
            await parts.site(scope, receive, send)
            return
        await answer(send, ready("NOT_FOUND"))

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.start()
                _tune()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def start(self) -> "Parts":
        """Build and warm up. What is unreachable now is only logged: /readyz tells."""
        self._running = parts = self._make_parts()
        await parts.warm_up()
        return parts

    async def stop(self) -> None:
        """Finish what was taken in, then close."""
        if self._running is not None:
            await self._running.close()
            self._running = None
            warmth.forget()
        telemetry.flush()


def _django() -> ASGIHandler:
    with warnings.catch_warnings():
        # Without a collectstatic the finders serve the files: no need to be warned of it.
        warnings.filterwarnings("ignore", message="No directory at")
        return ASGIHandler()


def _tune() -> None:
    """Set the interpreter up for a long life of short requests."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # What lives by now lives to the end: the collector need not look at it again.
    gc.collect()
    gc.freeze()


class Parts:
    """Everything that one running process has."""

    def __init__(
        self, *, gate: AsyncGate | None = None, producer: AsyncProducer | None = None
    ) -> None:
        self.gate = gate or AsyncGate()
        self.producer = producer or broker().async_producer()
        self.database = DatabaseThreads()
        self.catalogue = Catalogue(self._load_catalogue)
        self.sold_out = SoldOut(read_state=self._gate_state, read_holders=self._holders)
        self.rules = Rules(read_mark=self._rules_mark, read=self._rules_snapshot)
        known_keys = KnownKeys()
        self.breaker = Breaker()
        self.purchases = Purchases(
            gate=self.gate,
            producer=self.producer,
            breaker=self.breaker,
            lease_owner=f"web-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
            lease_ms=settings.SECKILL_FIRST_RETRY_MS,
            send_budget_ms=settings.SECKILL_SEND_BUDGET_MS,
            on_empty=self.sold_out.note,
            gate_missing=self._gate_missing,
            reject_reason=self._reject_reason,
            accepted=known_keys.add,
        )
        self.limits = EntryLimits()
        self.admission = Admission(
            verifier=verifier(),
            catalogue=self.catalogue,
            sold_out=self.sold_out,
            purchases=self.purchases,
            known_keys=known_keys,
            rules=self.rules,
            limits=self.limits,
        )
        self.streams = StatusStreams(gate=self.gate, database=self.database, verifier=verifier())
        self.monitor = MonitorStreams(gate=self.gate, database=self.database)
        self.site = Site(
            _django(),
            lanes=_SITE_LANES,
            paying=_PAYING_LANES,
            body_max=settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
        )
        self._forget_stop: Callable[[], None] | None = None
        loop = asyncio.get_running_loop()
        self._ticker = loop.create_task(self._tick())
        self._rules_follower = loop.create_task(self._follow_rules())

    async def warm_up(self) -> None:
        """Open connections before the first buyer needs them."""
        warmth.expect(self._warm_steps())
        await self._warm()

    def _warm_steps(self) -> dict[str, Callable[[], Awaitable[object]]]:
        return {
            "broker": self.producer.warm_up,
            "gate": self._reach_gate,
            "database": self.catalogue.refresh,
            "rules": self.rules.refresh,
        }

    async def _warm(self) -> None:
        """Try what is not warm yet; what fails is tried again each second."""
        for name, step in self._warm_steps().items():
            if name not in warmth.cold():
                continue
            try:
                if await asyncio.wait_for(step(), timeout=5) is False:
                    raise ConnectionError("it does not answer")
            except Exception as error:
                log.warning("warm_up_failed", part=name, error=repr(error))
            else:
                warmth.reached(name)

    async def _tick(self) -> None:
        """Hand the hot path's own counts to the metrics once a second."""
        while True:
            await asyncio.sleep(1)
            metrics.QUEUED.set(self.admission.queued)
            metrics.BREAKER_OPEN.set(self.breaker.is_open)
            await self._count_answers()
            if warmth.cold():
                await self._warm()

    async def _count_answers(self) -> None:
        """Hand the counts of a second to the metrics and, for each known sale, to its monitor."""
        by_sale: dict[int, Counter[str]] = {}
        for target, counts in metrics.flush().items():
            if self.catalogue.known(target):
                by_sale.setdefault(target[0], Counter()).update(counts)
        for activity_id, counts in by_sale.items():
            try:
                await self.gate.run(count_answers(activity_id=activity_id, counts=counts))
            except InventoryError:
                log.warning("answers_not_counted", activity_id=activity_id, answers=counts.total())

    async def _follow_rules(self) -> None:
        """Keep the rules of admission young; without the database the last ones stand."""
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self.rules.refresh()
            except Exception as error:
                log.warning("rules_not_read", error=repr(error))

    def expect_stop(self) -> None:
        """Listen for SIGTERM from the first stream on: the server's own handler stands by then."""
        if self._forget_stop is None:
            self._forget_stop = on_sigterm(self._end_streams)

    def _end_streams(self) -> None:
        self.streams.end()
        self.monitor.end()

    async def close(self) -> None:
        """Finish in-flight batches, end streams, close connections."""
        if self._forget_stop is not None:
            self._forget_stop()
        await self.streams.close()
        await self.monitor.close()
        try:
            async with asyncio.timeout(_DRAIN_S):
                await self.admission.drain()
                await self.purchases.drain()
        except TimeoutError:
            log.error("admission_not_drained", queued=self.admission.queued)
        await asyncio.to_thread(self.limits.close)
        self._ticker.cancel()
        self._rules_follower.cancel()
        await self._count_answers()
        await self.sold_out.close()
        await self.producer.close()
        await self.gate.close()
        self.site.close()
        self.database.close()

    async def _reach_gate(self) -> None:
        """One shard that answers is enough: a dead one must not keep a new process cold."""
        for activity_id in range(_SALES_TRIED):
            try:
                await self._gate_state(activity_id, 0)
            except GateUnavailable:
                if activity_id == _SALES_TRIED - 1:
                    raise
            else:
                return

    async def _gate_state(self, activity_id: int, sku_id: int) -> GateState | None:
        return await self.gate.run(verbs.gate_state(activity_id=activity_id, sku_id=sku_id))

    async def _holders(self, activity_id: int, sku_id: int) -> set[str]:
        return await read_holders(self.gate, activity_id=activity_id, sku_id=sku_id)

    async def _rules_mark(self) -> str:
        return await self.database.run(rules_mark)

    async def _rules_snapshot(self) -> RulesSnapshot:
        return await self.database.run(rules_snapshot)

    async def _load_catalogue(self) -> Mapping[Key, CatalogueEntry]:
        return await self.database.run(_load_catalogue)

    async def _gate_missing(self, key: Key) -> str:
        """Tell a sale that never opened, or is over, from a gate that was lost."""
        try:
            async with asyncio.timeout(_WHY_S):
                entry = await self.catalogue.find(key)
        except Exception:
            return "GATE_LOST"
        if entry is None:
            return "NOT_FOUND"
        if not entry.opened:
            return "NOT_STARTED"
        if entry.over:
            return "CLOSED"
        log.error("gate_lost", activity_id=key[0], sku_id=key[1])
        return "GATE_LOST"

    async def _reject_reason(self, reservation: Reservation) -> str | None:
        """Return the reason of a reject that PostgreSQL holds; None when it holds none."""
        try:
            view = await self.database.run(
                reservation_status,
                activity_id=reservation.activity_id,
                reservation_id=reservation.reservation_id,
                user_id=reservation.user_id,
            )
        except Exception as error:
            log.warning(
                "reject_unread", reservation_id=reservation.reservation_id, error=repr(error)
            )
            return None
        # Version 0 is the gate's word, which the caller knows already.
        return view.reason if view is not None and view.version > 0 else None


def _load_catalogue() -> dict[Key, CatalogueEntry]:
    """Read every SKU that left DRAFT. Cost: three statements."""
    return {
        (activity.activity_id, sku.sku_id): CatalogueEntry(
            opened=activity.opened_at is not None,
            over=activity.status in {ActivityStatus.CLOSED, ActivityStatus.SETTLED},
        )
        for activity in selectors.list_activities()
        for sku in activity.skus
    }
