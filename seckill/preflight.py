"""May this sale be opened? One red or green line for each thing that it needs.

Read only: running it changes nothing, at any time.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.conf import settings
from django.core.checks import Error, run_checks
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from inventory.gate_status import report_gate
from inventory.selectors import ActivityRecord, activity_record
from inventory.states import ActivityStatus
from messaging import provision
from messaging.selectors import WorkerRecord, paused_groups, workers
from messaging.topology import enabled_groups
from seckill import dependencies
from seckill.governor import current

_ROLES: Final = ("sender", "scanner")
# A sale of 100 000 buyers writes about 10 KB each, in three stores.
_DISK_BYTES: Final = 4 * 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One line: green when `ok`, else `hint` says what to do."""

    name: str
    ok: bool
    found: str
    hint: str = ""


def run(activity_id: int) -> list[Check]:
    """Check everything that a sale needs; a check that breaks is a red line, never an exception.

    Returns:
        All lines, in the order of what depends on what. Cost: about a second, mostly the broker.
    """
    return [
        _line(
            "database",
            dependencies.database,
            hint="start PostgreSQL; look at DATABASE_URL",
        ),
        _line("migrations", _migrations, hint="run manage.py migrate"),
        _line("settings", _settings, hint="run manage.py check"),
        _line("partitions", dependencies.partitions),
        _line("Redis: durable, no eviction, clock", dependencies.redis),
        _line("disk of this machine", _disk, hint="make room"),
        _line("topics and groups", _topics, hint="run manage.py provision_broker"),
        *_guard("workers", _workers),
        _line("governor", _governor, hint="run manage.py run_governor"),
        *_guard("sale", lambda: _sale(activity_id)),
    ]


def _line(name: str, check: Callable[[], object], *, hint: str = "") -> Check:
    """Turn a check into a line; its answer, as text, is what is wrong, or empty."""
    try:
        problem = str(check())
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    return Check(name=name, ok=not problem, found=problem or "ok", hint=hint if problem else "")


def _guard(name: str, lines: Callable[[], Iterator[Check]]) -> list[Check]:
    try:
        return list(lines())
    except Exception as error:
        return [Check(name=name, ok=False, found=f"{type(error).__name__}: {error}")]


def _migrations() -> str:
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return f"{len(missing)} are missing" if missing else ""


def _settings() -> str:
    errors = [found for found in run_checks() if isinstance(found, Error)]
    return "; ".join(f"{error.msg} ({error.id})" for error in errors)


def _topics() -> str:
    if settings.ROCKETMQ_ENDPOINTS == "memory":
        return "the broker is in memory: nothing survives this process"
    found = provision.differences()
    return "; ".join(str(difference) for difference in found[:3])


def _governor() -> str:
    return "none is heard of: everybody throttles" if current().stale else ""


def _disk() -> str:
    """Free space of this machine; PostgreSQL, Redis and the broker elsewhere are not seen."""
    free = shutil.disk_usage(settings.BASE_DIR).free
    return "" if free >= _DISK_BYTES else f"only {free // 2**20} MiB are free on this machine"


def _workers() -> Iterator[Check]:
    """Every enabled group and every other loop must have a live member."""
    alive = [worker for worker in workers() if worker.alive]
    paused = {pause.group: pause for pause in paused_groups()}
    for group in enabled_groups():
        members = [worker for worker in alive if worker.group == group.name]
        pause = paused.get(group.name)
        yield Check(
            name=f"group {group.name}",
            ok=bool(members) and pause is None,
            found=(f"paused by {pause.paused_by}: {pause.reason}" if pause else _count(members)),
            hint="" if members else f"run manage.py run_consumer {group.name}",
        )
    for role in _ROLES:
        members = [worker for worker in alive if worker.role == role]
        yield Check(
            name=role,
            ok=bool(members),
            found=_count(members),
            hint="" if members else f"run manage.py run_{role}",
        )


def _count(members: list[WorkerRecord]) -> str:
    return f"{len(members)} alive" if members else "none alive"


def _sale(activity_id: int) -> Iterator[Check]:
    sale = activity_record(activity_id)
    if sale is None:
        yield Check(
            name="sale", ok=False, found=f"there is no activity {activity_id}", hint="see the admin"
        )
        return
    now = datetime.now(UTC)
    left_s = (sale.ends_at - now).total_seconds()
    yield Check(
        name="status",
        ok=sale.status is not ActivityStatus.SETTLED and not sale.rebuild_unfinished,
        found=sale.status.value
        + (", its gate is being rebuilt" if sale.rebuild_unfinished else ""),
    )
    yield Check(
        name="window",
        ok=left_s > 0,
        found=f"{sale.starts_at:%Y-%m-%d %H:%M:%S} to {sale.ends_at:%Y-%m-%d %H:%M:%S} UTC",
        hint="" if left_s > 0 else "it is over: edit the window",
    )
    yield from _skus(sale)
    yield Check(
        name="limits",
        ok=sale.max_open >= 1 and sale.max_pending >= 1 and sale.validity_s >= 3,
        found=(
            f"max_open {sale.max_open}, max_pending {sale.max_pending}, "
            f"validity {sale.validity_s} s, pay window {sale.pay_window_s} s"
        ),
        hint="validity below 3 s leaves no time for an order" if sale.validity_s < 3 else "",
    )
    yield _gate(sale)


def _skus(sale: ActivityRecord) -> Iterator[Check]:
    if not sale.skus:
        yield Check(name="SKUs", ok=False, found="none", hint="add what is to be sold")
    for sku in sale.skus:
        yield Check(
            name=f"SKU {sku.sku_id}",
            ok=sku.price_cents > 0 and sku.initial_units > 0 and len(sku.currency) == 3,
            found=(
                f"{sku.name}: {sku.price_cents / 100:.2f} {sku.currency}, "
                f"{sku.initial_units} units, {sku.limit_per_user} for one buyer"
            ),
        )


def _gate(sale: ActivityRecord) -> Check:
    condition = report_gate(sale).condition
    fresh = condition == "NOT_LOADED" and sale.opened_at is None
    return Check(
        name="gate",
        ok=fresh
        or condition not in {"NOT_LOADED", "UNREACHABLE", "GATE_LOST", "MIXED", "REBUILDING"},
        found=condition + (" (warm it up before opening)" if fresh else ""),
        hint="only rebuild_gate brings a lost gate back" if condition == "GATE_LOST" else "",
    )
