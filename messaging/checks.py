"""System checks on the registry: a topic or group that breaks a rule never gets to a broker.

`manage.py check` runs them, and `provision_broker` before it does anything.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from messaging import topology
from messaging.topology import GroupSpec, TopicSpec, TopicType

_PREFIX: Final = re.compile(r"([A-Z][A-Z0-9]*_)+SECKILL_")
_TOPIC: Final = re.compile(r"[A-Z]+(_[A-Z]+)*_V[1-9][0-9]*")
_GROUP: Final = re.compile(r"CG_SECKILL_[A-Z]+(_[A-Z]+)*_V[1-9][0-9]*")
# Letters only: an id, an activity or a SKU in a tag or a name needs digits.
_TAG: Final = re.compile(r"[A-Z]+(_[A-Z]+)*")
_OWNERS: Final = frozenset({"inventory", "orders", "messaging", "dlq_admin", "seckill"})
_DURABILITY: Final = frozenset({"SYNC_FLUSH", "SYNC_FLUSH+SYNC_MASTER"})
_ANSWERS: Final = ("if_lost", "if_doubled", "if_out_of_order", "if_piled_up")
_MAX_TOPIC_LENGTH: Final = 127
_MAX_GROUP_LENGTH: Final = 120
_MAX_RETRIES: Final = 16
_DRAIN_RETRIES: Final = 1000  # a dead message arrives with its old count of attempts


@register("messaging")
def check_registry(**kwargs: Any) -> list[CheckMessage]:
    """Check topics, groups and the prefix."""
    return [
        Error(text, hint=hint, id=f"messaging.{code}", obj=name)
        for code, name, text, hint in problems(
            topics=topology.TOPICS, groups=topology.GROUPS, prefix=settings.SECKILL_TOPIC_PREFIX
        )
    ]


Problem = tuple[str, str, str, str]  # code, name, text, hint


def problems(
    *, topics: Sequence[TopicSpec], groups: Sequence[GroupSpec], prefix: str
) -> Iterator[Problem]:
    """Yield every broken rule."""
    if not _PREFIX.fullmatch(prefix):
        yield (
            "E001",
            prefix,
            "SECKILL_TOPIC_PREFIX must be capitals, end in _SECKILL_ and name the environment",
            "PROD_SECKILL_ or DEV_SECKILL_",
        )
    yield from _doubles("topic", (topic.name for topic in topics))
    yield from _doubles("group", (group.name for group in groups))
    for topic in topics:
        yield from _topic(topic, prefix)
    by_name = {topic.name: topic for topic in topics}
    for group in groups:
        yield from _group(group, by_name.get(group.topic), prefix)
    read = {group.topic for group in groups if group.enabled}
    for topic in topics:
        if topic.enabled and topic.name not in read:
            yield ("E016", topic.name, "an enabled topic has no enabled group", "disable it")


def _doubles(kind: str, names: Iterable[str]) -> Iterator[Problem]:
    for name, count in Counter(names).items():
        if count > 1:
            yield ("E002", name, f"the {kind} is in the registry {count} times", "keep one")


def _topic(topic: TopicSpec, prefix: str) -> Iterator[Problem]:
    def wrong(code: str, text: str, hint: str) -> Problem:
        return (code, topic.name, f"topic {topic.name}: {text}", hint)

    if not _TOPIC.fullmatch(topic.name) or len(prefix + topic.name) > _MAX_TOPIC_LENGTH:
        yield wrong("E003", "illegal name", "CAPITALS_WITH_UNDERSCORES_V1, never an id in it")
    for answer in _ANSWERS:
        if len(str(getattr(topic, answer)).split()) < 2:
            yield wrong("E004", f"`{answer}` has no answer", "say what happens, in a sentence")
    if topic.owner not in _OWNERS:
        yield wrong("E005", "`owner` must be an app", ", ".join(sorted(_OWNERS)))
    if topic.durability not in _DURABILITY:
        yield wrong("E006", "`durability` is not a known class", ", ".join(sorted(_DURABILITY)))
    if not topic.tags:
        yield wrong("E007", "no tags", "tags are a closed set of event kinds")
    for tag in topic.tags:
        if not _TAG.fullmatch(tag):
            yield wrong("E008", f"illegal tag {tag!r}", "capitals only: ids go into the keys")
    if not 1 <= topic.queues <= 128:
        yield wrong("E009", f"{topic.queues} queues", "1 to 128")
    if topic.name.startswith("ORDER_CREATE") and topic.type is not TopicType.NORMAL:
        yield wrong(
            "E010",
            f"creation must be NORMAL, not {topic.type}",
            "an ordered topic lets one stuck reservation block every buyer behind it",
        )
    marks: tuple[tuple[str, TopicType], ...] = (
        ("FIFO", TopicType.FIFO),
        ("TX", TopicType.TRANSACTION),
        ("TIMEOUT", TopicType.DELAY),
    )
    for mark, type_ in marks:
        if (mark in topic.name.split("_")) is not (topic.type is type_):
            yield wrong("E011", f"{mark} in the name and type {type_} go together", "rename it")


def _group(group: GroupSpec, topic: TopicSpec | None, prefix: str) -> Iterator[Problem]:
    def wrong(code: str, text: str, hint: str) -> Problem:
        return (code, group.name, f"group {group.name}: {text}", hint)

    if not _GROUP.fullmatch(group.name) or len(prefix + group.name) > _MAX_GROUP_LENGTH:
        yield wrong("E012", "illegal name", "CG_SECKILL_PURPOSE_V1")
    if not 1 <= group.max_retries <= _limit(group):
        yield wrong("E013", f"{group.max_retries} retries", f"1 to {_limit(group)}")
    if not group.idempotency.strip() or not group.schema_versions:
        yield wrong("E014", "`idempotency` or `schema_versions` is empty", "all members share them")
    if topic is None:
        yield wrong("E015", f"topic {group.topic} is not in the registry", "add the topic first")
        return
    if group.enabled and not topic.enabled:
        yield wrong("E015", f"topic {group.topic} is disabled", "enable the topic first")
    unknown = sorted(set(group.tags) - set(topic.tags))
    if unknown or not group.tags:
        yield wrong(
            "E017",
            f"subscribes to tags that {topic.name} does not have: {', '.join(unknown) or 'none'}",
            ", ".join(topic.tags),
        )


def _limit(group: GroupSpec) -> int:
    return _DRAIN_RETRIES if "_DLQ_DRAIN_" in group.name else _MAX_RETRIES
