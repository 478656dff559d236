"""A sale in numbers: what it needs, beside what there is, the tightest first (no I/O)."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from seckill.capacity import formulas
from seckill.governor.budget import budget

_MB = 1e6
_GB = 1e9


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    """What is planned and what there is. Rates are per second, 0 means "not judged".

    Args:
        entry_per_s: reservations accepted a second during the burst.
        burst_s: how long the burst lasts.
        steady_per_s: accepted a second after it.
        consume_per_s: orders a second that all consumers make.
        transaction_s: p99 of one order transaction.
        batch: orders in one transaction.
        network_s: everything else between reservation and order.
        slo_s: from reservation to order, for 99.9 %.
        validity_s: of a reservation.
        messages_each: messages sent for one order.
        groups: groups that read a message, on average.
        message_bytes: of one message.
        replicas: copies at the broker.
        retention_h: how long the broker keeps messages.
        orders_per_day: for the broker's storage, and for the daily peak.
        peak_factor: the day's peak rate over its mean.
        overhead: factor for index, delay, retries, dead letters.
        reserve: share on top of rates and storage.
        queue_per_s: messages a second of one queue.
        queues: of the creation topic.
        safe_transactions: that the database bears.
        instances: processes of the order group.
        workers_max: loops in one of them.
        gate_per_s: reservations a second that admission and gate make.
        max_open: reservations without an outcome that the gate allows.
        network_mb_s: of the broker's machine.
        disk_gb: of all brokers together.
    """

    entry_per_s: float = 20_000.0
    burst_s: float = 0.5
    steady_per_s: float = 0.0
    consume_per_s: float = 4_000.0
    transaction_s: float = 0.1
    batch: int = 128
    network_s: float = 0.5
    slo_s: float = 3.0
    validity_s: float = 300.0
    messages_each: float = 6.0
    groups: float = 2.0
    message_bytes: float = 1_500.0
    replicas: float = 2.0
    retention_h: float = 72.0
    orders_per_day: float = 1_000_000.0
    peak_factor: float = 20.0
    overhead: float = 1.3
    reserve: float = 0.3
    queue_per_s: float = 1_500.0
    queues: int = 64
    safe_transactions: int = 240
    instances: int = 12
    workers_max: int = 100
    gate_per_s: float = 0.0
    max_open: int = 20_000
    network_mb_s: float = 0.0
    disk_gb: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One resource: need beside supply; `load` = need ÷ supply, None when there is no supply."""

    name: str
    need: float
    have: float
    unit: str
    formula: str

    @property
    def load(self) -> float | None:
        """Return need ÷ supply."""
        return self.need / self.have if self.have > 0 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All rows, the tightest first, and what breaks first (empty when nothing does)."""

    rows: tuple[Row, ...]
    breaks_first: str
    drain_s: float
    order_within_s: float

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON values; infinite is null."""
        return {
            "rows": [{**_finite(asdict(row)), "load": _number(row.load)} for row in self.rows],
            "breaks_first": self.breaks_first,
            "drain_s": _number(self.drain_s),
            "order_within_s": _number(self.order_within_s),
        }


def plan(n: Numbers) -> Plan:
    """Work the formulas for given numbers."""
    backlog = formulas.burst_backlog(
        produce_per_s=n.entry_per_s, consume_per_s=n.consume_per_s, burst_s=n.burst_s
    )
    drain = formulas.drain_s(
        backlog=backlog, consume_per_s=n.consume_per_s, produce_per_s=n.steady_per_s
    )
    within = formulas.slo_budget_s(
        drain_s=drain, transaction_s=n.transaction_s, network_s=n.network_s
    )
    sent = formulas.with_reserve(
        formulas.message_rate(
            business_per_s=max(n.entry_per_s, n.steady_per_s), messages_each=n.messages_each
        ),
        reserve=n.reserve,
    )
    created = formulas.with_reserve(max(n.entry_per_s, n.steady_per_s), reserve=n.reserve)
    read = formulas.delivery_rate(messages_per_s=sent, groups=n.groups)
    least_queues, power = formulas.queues(messages_per_s=created, per_queue_per_s=n.queue_per_s)
    share = budget(
        safe_transactions=n.safe_transactions,
        instances=n.instances,
        most_per_instance=n.workers_max,
    )
    together = formulas.transactions_at_a_time(
        orders_per_s=n.consume_per_s, orders_each=n.batch, transaction_s=n.transaction_s
    )
    process_per_s = formulas.instance_rate(
        concurrency=share.per_instance, seconds_each=max(1e-9, n.transaction_s / max(1, n.batch))
    )
    stored = formulas.storage_bytes(
        count=n.orders_per_day * n.messages_each * n.retention_h / 24,
        message_bytes=n.message_bytes,
        replicas=n.replicas,
        overhead=n.overhead,
        reserve=n.reserve,
    )
    rows = [
        Row(
            name="order within the SLO",
            need=within,
            have=n.slo_s,
            unit="s",
            formula="backlog ÷ (consume - produce) + transaction + network",
        ),
        Row(
            name="order within the validity",
            need=within,
            have=n.validity_s,
            unit="s",
            formula="the same, beside the reservation's life",
        ),
        Row(
            name="consumers, steady",
            need=n.steady_per_s,
            have=n.consume_per_s,
            unit="orders/s",
            formula="accepted after the burst; above consumption the backlog never ends",
        ),
        Row(
            name="consumers, daily peak",
            need=formulas.mean_per_s(n.orders_per_day) * n.peak_factor,
            have=n.consume_per_s,
            unit="orders/s",
            formula="orders of a day ÷ 86 400 x peak factor; never the mean",
        ),
        Row(
            name="lag at the end of the burst",
            need=formulas.lag_s(backlog=backlog, consume_per_s=n.consume_per_s),
            have=n.slo_s,
            unit="s",
            formula="backlog ÷ consume: age of the oldest message then, beside the SLO",
        ),
        Row(
            name="processes",
            need=formulas.instances(demand_per_s=n.consume_per_s, instance_per_s=process_per_s),
            have=n.instances,
            unit="processes",
            formula="consume ÷ (loops of one x batch ÷ transaction x 70 %), without a spare",
        ),
        Row(
            name="open reservations",
            need=backlog,
            have=n.max_open,
            unit="reservations",
            formula="(entry - consume) x burst, beside max_open",
        ),
        Row(
            name="order transactions",
            need=together,
            have=share.total,
            unit="at a time",
            formula="consume ÷ batch x transaction, beside 70 % of what the database bears",
        ),
        Row(
            name="loops in a process",
            need=math.ceil(together / max(1, n.instances) - 1e-9),
            have=share.per_instance,
            unit="loops",
            formula="transactions ÷ processes, beside the budget of one",
        ),
        Row(
            name="queues",
            need=least_queues,
            have=n.queues,
            unit=f"queues (create {power})",
            formula="creation messages/s with reserve ÷ rate of a queue",
        ),
        Row(
            name="gate",
            need=n.entry_per_s,
            have=n.gate_per_s,
            unit="reservations/s",
            formula="accepted in the burst",
        ),
        Row(
            name="broker network, in and out",
            need=(sent + read) * n.message_bytes / _MB,
            have=n.network_mb_s,
            unit="MB/s",
            formula="(messages sent + messages sent x groups) x size",
        ),
        Row(
            name="broker disk",
            need=stored / _GB,
            have=n.disk_gb,
            unit="GB",
            formula="orders x messages x days x size x replicas x overhead, with reserve",
        ),
    ]
    rows.sort(key=lambda row: -1.0 if row.load is None else row.load, reverse=True)
    over = [row.name for row in rows if row.load is not None and row.load > 1]
    return Plan(
        rows=tuple(rows),
        breaks_first=over[0] if over else "",
        drain_s=drain,
        order_within_s=within,
    )


def _number(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else round(value, 4)


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _number(float(value)) if isinstance(value, int | float) else value
        for key, value in values.items()
    }
