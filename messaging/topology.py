"""The registry of topics and groups: the only place that names them.

Each topic answers four questions before it may exist: what if a message is lost, doubled, out of
order, piled up. `manage.py check` fails on a missing answer (`messaging/checks.py`), and
`manage.py provision_broker` makes the broker equal to this file. Source: docs/messaging.md.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from django.conf import settings


class TopicType(StrEnum):
    """RocketMQ 5 message types; a topic carries one."""

    NORMAL = "NORMAL"
    DELAY = "DELAY"
    FIFO = "FIFO"
    TRANSACTION = "TRANSACTION"


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicSpec:
    """A topic and why it may exist. `tags` is the closed set of its tags."""

    name: str
    type: TopicType
    queues: int
    tags: tuple[str, ...]
    owner: str
    durability: str
    if_lost: str
    if_doubled: str
    if_out_of_order: str
    if_piled_up: str
    enabled: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSpec:
    """A consumer group. All members share subscription, idempotency rule, retry limit and schemas.

    `has_inbox`: its effect is recorded in the inbox; others are idempotent by a guarded update.
    `core` groups keep their workers when the database is busy, the others wait.
    """

    name: str
    topic: str
    tags: tuple[str, ...]
    max_retries: int
    idempotency: str
    schema_versions: tuple[int, ...]
    has_inbox: bool
    core: bool
    enabled: bool = True


ORDER_CREATE: Final = "ORDER_CREATE_V1"
ORDER_TIMEOUT: Final = "ORDER_TIMEOUT_V1"
ORDER_EVENT: Final = "ORDER_EVENT_V1"
INVENTORY_COMPENSATE: Final = "INVENTORY_COMPENSATE_V1"

CG_ORDER_CREATE: Final = "CG_SECKILL_ORDER_CREATE_PG_V1"
CG_ORDER_TIMEOUT: Final = "CG_SECKILL_ORDER_TIMEOUT_V1"
CG_INVENTORY_COMPENSATE: Final = "CG_SECKILL_INVENTORY_COMPENSATE_V1"
CG_ORDER_PROJECTION: Final = "CG_SECKILL_ORDER_QUERY_PROJECTION_V1"
CG_AUDIT: Final = "CG_SECKILL_AUDIT_V1"
CG_SETTLEMENT: Final = "CG_SECKILL_SETTLEMENT_V1"
CG_POINTS: Final = "CG_SECKILL_POINTS_V1"
CG_INVOICE: Final = "CG_SECKILL_INVOICE_V1"
CG_NOTIFY: Final = "CG_SECKILL_NOTIFY_V1"
CG_RISK: Final = "CG_SECKILL_RISK_V1"
CG_DLQ_DRAIN: Final = "CG_SECKILL_DLQ_DRAIN_V1"

TAG_CREATE_ORDER: Final = "CREATE_ORDER"
TAG_CANCEL_IF_UNPAID: Final = "CANCEL_IF_UNPAID"
TAG_RELEASE_RESERVATION: Final = "RELEASE_RESERVATION"
EVENT_TAGS: Final = (
    "ORDER_CREATED",
    "ORDER_PAID",
    "ORDER_CANCELED",
    "ORDER_REJECTED",
    "ORDER_REFUNDED",
)
MONEY_TAGS: Final = ("ORDER_PAID", "ORDER_REFUNDED")

TOPICS: Final[tuple[TopicSpec, ...]] = (
    TopicSpec(
        name=ORDER_CREATE,
        type=TopicType.NORMAL,
        queues=64,
        tags=(TAG_CREATE_ORDER,),
        owner="orders",
        durability="SYNC_FLUSH",
        if_lost="The reservation stays in Redis; scanner and sweep send the same message again.",
        if_doubled="The inbox and the order's unique keys make one order.",
        if_out_of_order="Reservations are independent of each other.",
        if_piled_up="BUSY at the gate, then expiry through the inbox and release.",
    ),
    TopicSpec(
        name=ORDER_TIMEOUT,
        type=TopicType.DELAY,
        queues=32,
        tags=(TAG_CANCEL_IF_UNPAID,),
        owner="orders",
        durability="SYNC_FLUSH",
        if_lost="The overdue scan cancels the order.",
        if_doubled="The conditional cancel changes a row once.",
        if_out_of_order="Only the database's clock and the order's status decide.",
        if_piled_up="Orders stay unpaid a little longer; the overdue scan helps.",
    ),
    TopicSpec(
        name=ORDER_EVENT,
        type=TopicType.NORMAL,
        queues=64,
        tags=EVENT_TAGS,
        owner="orders",
        durability="SYNC_FLUSH",
        if_lost="The sweep makes up for a missing confirm; readers ask PostgreSQL first.",
        if_doubled="confirm answers ALREADY; each effect group has its own inbox.",
        if_out_of_order="aggregate_version guards every projection.",
        if_piled_up="Status in Redis lags; PostgreSQL answers first.",
    ),
    TopicSpec(
        name=INVENTORY_COMPENSATE,
        type=TopicType.NORMAL,
        queues=32,
        tags=(TAG_RELEASE_RESERVATION,),
        owner="orders",
        durability="SYNC_FLUSH",
        if_lost="The scanner drives rows that are DUE for over 30 s.",
        if_doubled="buyers[user] names the reservation once; DONE is acked.",
        if_out_of_order="Releases are independent of each other.",
        if_piled_up="Units return to the gate later; nothing is sold twice.",
    ),
)


def _effect(name: str, *, key: str) -> GroupSpec:
    """Return the row of an effect group of paid orders; docs/effects.md tells how to add one."""
    return GroupSpec(
        name=name,
        topic=ORDER_EVENT,
        tags=MONEY_TAGS,
        max_retries=16,
        idempotency=f"inbox (group, message_id); unique {key}",
        schema_versions=(1,),
        has_inbox=True,
        core=False,
    )


GROUPS: Final[tuple[GroupSpec, ...]] = (
    GroupSpec(
        name=CG_ORDER_CREATE,
        topic=ORDER_CREATE,
        tags=(TAG_CREATE_ORDER,),
        max_retries=5,
        idempotency="inbox (group, message_id); unique order, reservation, activity+sku+user",
        schema_versions=(1,),
        has_inbox=True,
        core=True,
    ),
    GroupSpec(
        name=CG_ORDER_TIMEOUT,
        topic=ORDER_TIMEOUT,
        tags=(TAG_CANCEL_IF_UNPAID,),
        max_retries=16,
        idempotency="guarded UPDATE of the order",
        schema_versions=(1,),
        has_inbox=False,
        core=True,
    ),
    GroupSpec(
        name=CG_INVENTORY_COMPENSATE,
        topic=INVENTORY_COMPENSATE,
        tags=(TAG_RELEASE_RESERVATION,),
        max_retries=16,
        idempotency="release_state and buyers[user]",
        schema_versions=(1,),
        has_inbox=False,
        core=True,
    ),
    GroupSpec(
        name=CG_ORDER_PROJECTION,
        topic=ORDER_EVENT,
        tags=EVENT_TAGS,
        max_retries=16,
        idempotency="confirm is repeatable; aggregate_version",
        schema_versions=(1,),
        has_inbox=False,
        core=True,
    ),
    GroupSpec(
        name=CG_AUDIT,
        topic=ORDER_EVENT,
        tags=EVENT_TAGS,
        max_retries=16,
        idempotency="primary key event_id of the archive",
        schema_versions=(1,),
        has_inbox=False,
        core=False,
    ),
    _effect(CG_SETTLEMENT, key="(group, event, order, rule version)"),
    _effect(CG_POINTS, key="(group, event, order, rule version)"),
    _effect(CG_INVOICE, key="(group, event, order, rule version)"),
    _effect(CG_NOTIFY, key="(event, order, channel)"),
    _effect(CG_RISK, key="(group, event, order, rule version)"),
)

# Reads every `%DLQ%<group>`, so it stands beside the groups that have one topic. A dead letter
# comes with the attempts of its first life: a small limit would dead-letter it again at once.
DLQ_DRAIN: Final = GroupSpec(
    name=CG_DLQ_DRAIN,
    topic="",
    tags=(),
    max_retries=1000,
    idempotency="unique (message_id, group); one occurrence for each copy",
    schema_versions=(1,),
    has_inbox=False,
    core=False,
)


def enabled_topics() -> tuple[TopicSpec, ...]:
    """Return the topics that the broker must have."""
    return tuple(topic for topic in TOPICS if topic.enabled)


def enabled_groups() -> tuple[GroupSpec, ...]:
    """Return the groups that the broker must have."""
    return tuple(group for group in GROUPS if group.enabled)


def topic_spec(name: str) -> TopicSpec:
    """Return a topic by its short name; KeyError when the registry has none."""
    return _TOPICS[name]


def group_spec(name: str) -> GroupSpec:
    """Return a group by its short name; KeyError when the registry has none."""
    return _GROUPS[name]


def physical_topic(name: str) -> str:
    """Return the broker's name of a registry topic: prefix + name (`%DLQ%…` stays as it is)."""
    return name if name.startswith("%") else f"{settings.SECKILL_TOPIC_PREFIX}{name}"


def physical_group(name: str) -> str:
    """Return the broker's name of a registry group: the prefix stands before it as well."""
    return f"{settings.SECKILL_TOPIC_PREFIX}{name}"


def dlq_topic(group: str) -> str:
    """Return the physical name of a group's dead letter topic."""
    return f"%DLQ%{physical_group(group)}"


_TOPICS: Final = {topic.name: topic for topic in TOPICS}
_GROUPS: Final = {group.name: group for group in GROUPS}
