"""What a watcher reads of running sales: stock rows, gates, and how buyers were answered.

Made for one sampler that asks once a second (`seckill/monitor/`): few statements, one round trip to
Redis for each sale, no scan. Source: docs/operations/monitor.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Case, IntegerField, Value, When

from inventory import keys
from inventory.call import Call
from inventory.models import Activity, Sku, Stock
from inventory.reads import flat_pairs, time_ms
from inventory.states import ActivityStatus

# So long after the last answer the counts of a sale are forgotten.
ANSWERS_LIVE_S: Final = 7 * 86_400


@dataclass(frozen=True, kw_only=True, slots=True)
class SkuStock:
    """Final stock of a SKU, as its row says."""

    sku_id: int
    name: str
    initial: int
    topped_up: int
    cut: int
    available: int
    withheld: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchedSale:
    """A sale that is worth watching. Instants are epoch milliseconds."""

    activity_id: int
    name: str
    status: ActivityStatus
    is_test: bool
    starts_ms: int
    ends_ms: int
    validity_ms: int
    max_open: int
    max_pending: int
    skus: tuple[SkuStock, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SkuAtGate:
    """A SKU as its gate in Redis tells it; `status` is MISSING when there is no gate."""

    sku_id: int
    status: str
    stopped: bool
    stock: int
    holders: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SaleAtGate:
    """A sale at the gate, in one look.

    `pending_age_s` is how long the oldest unconfirmed send is overdue, `open_age_s` how long ago
    the oldest reservation without an outcome was made (0 when there is none). `answers` counts
    buyers' requests by the code of their answer.
    """

    skus: tuple[SkuAtGate, ...]
    pending: int
    pending_age_s: float
    open: int
    open_age_s: float
    answers: dict[str, int]


def watched_sales(limit: int) -> list[WatchedSale]:
    """Return the sales that are warm or were opened and are not settled.

    Args:
        limit: at most so many: open and paused ones first, then the newest.

    Cost: three statements, none grows with orders.
    """
    found = (
        Activity.objects.exclude(status__in=[ActivityStatus.DRAFT, ActivityStatus.SETTLED])
        .annotate(
            live=Case(
                When(status__in=[ActivityStatus.OPEN, ActivityStatus.PAUSED], then=Value(0)),
                default=Value(1),
                output_field=IntegerField(),
            )
        )
        .order_by("live", "-starts_at", "-pk")[:limit]
    )
    activities = list(found)
    names = dict(
        Sku.objects.filter(activity_id__in=[a.pk for a in activities]).values_list("pk", "name")
    )
    stocks: dict[int, list[SkuStock]] = {activity.pk: [] for activity in activities}
    for row in Stock.objects.filter(activity_id__in=list(stocks)).order_by("pk"):
        stocks[row.activity_id].append(
            SkuStock(
                sku_id=row.pk,
                name=names.get(row.pk, ""),
                initial=row.initial,
                topped_up=row.topped_up,
                cut=row.cut,
                available=row.available,
                withheld=row.withheld,
            )
        )
    return [
        WatchedSale(
            activity_id=activity.pk,
            name=activity.name,
            status=ActivityStatus(activity.status),
            is_test=activity.is_test,
            starts_ms=round(activity.starts_at.timestamp() * 1000),
            ends_ms=round(activity.ends_at.timestamp() * 1000),
            validity_ms=activity.validity_s * 1000,
            max_open=activity.max_open,
            max_pending=activity.max_pending,
            skus=tuple(stocks[activity.pk]),
        )
        for activity in activities
    ]


def sale_at_gate(*, activity_id: int, sku_ids: Sequence[int], validity_ms: int) -> Call[SaleAtGate]:
    """Read a sale at its gate: constant time for each SKU, however many buyers there are."""

    def parse(raw: Any) -> SaleAtGate:
        now, pending, due, waiting, oldest, answers, *per_sku = raw
        now_ms = time_ms(now)
        return SaleAtGate(
            skus=tuple(
                _sku(sku_id, per_sku[3 * place : 3 * place + 3])
                for place, sku_id in enumerate(sku_ids)
            ),
            pending=int(pending),
            pending_age_s=_age_s(now_ms, due, 0),
            open=int(waiting),
            open_age_s=_age_s(now_ms, oldest, validity_ms),
            answers={code: int(count) for code, count in flat_pairs(answers)},
        )

    pending = keys.mq_pending(activity_id)
    waiting = keys.open_reservations(activity_id)
    return Call(
        commands=(
            ("TIME",),
            ("ZCARD", pending),
            ("ZRANGE", pending, 0, 0, "WITHSCORES"),
            ("ZCARD", waiting),
            ("ZRANGE", waiting, 0, 0, "WITHSCORES"),
            ("HGETALL", keys.answers(activity_id)),
            *(
                command
                for sku_id in sku_ids
                for command in (
                    ("HMGET", keys.gate(activity_id, sku_id), "status", "stopped"),
                    ("GET", keys.stock(activity_id, sku_id)),
                    ("HLEN", keys.buyers(activity_id, sku_id)),
                )
            ),
        ),
        parse=parse,
    )


def count_answers(*, activity_id: int, counts: Mapping[str, int]) -> Call[None]:
    """Add to the counts of how buyers of a sale were answered; one call a second a process."""
    key = keys.answers(activity_id)
    return Call(
        commands=(
            *(("HINCRBY", key, code, count) for code, count in counts.items()),
            ("EXPIRE", key, ANSWERS_LIVE_S),
        ),
        parse=lambda _: None,
    )


def _sku(sku_id: int, raw: Sequence[Any]) -> SkuAtGate:
    (status, stopped), stock, holders = raw
    return SkuAtGate(
        sku_id=sku_id,
        status=status or "MISSING",
        stopped=stopped == "1",
        stock=int(stock or 0),
        holders=int(holders),
    )


def _age_s(now_ms: int, first: Any, ahead_ms: int) -> float:
    """Return how long ago the first member of a ZSET was due, `ahead_ms` before its score."""
    pairs = flat_pairs(first)
    if not pairs:
        return 0.0
    return max(0.0, (now_ms - float(pairs[0][1]) + ahead_ms) / 1000)
