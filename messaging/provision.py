"""Makes the broker equal to the registry: topics with type and queues, groups, dead letter topics.

Two list requests read everything that a broker has, two more change what differs, and a second
reading proves it. Nothing is ever deleted or made smaller. Source: docs/messaging.md.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings

from messaging import topology
from messaging.provision_remoting import Admin, AdminError
from messaging.topology import GroupSpec, TopicSpec

_READ_WRITE: Final = 6
_ROUTE_WAIT_S: Final = 10.0
_TYPE: Final = "message.type"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One thing in which a broker differs from the registry."""

    broker: str
    kind: str  # topic, group or route
    name: str
    wanted: str
    found: str  # empty: it is missing

    def __str__(self) -> str:
        found = self.found or "missing"
        return f"{self.broker}: {self.kind} {self.name}: {found}, wanted {self.wanted}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wanted:
    topics: Mapping[str, TopicSpec | None]  # None: a dead letter topic
    groups: Mapping[str, GroupSpec]


def admin_from_settings() -> Admin:
    """Return the admin side named by ROCKETMQ_NAMESRV, _CLUSTER, _ACCESS_KEY and _SECRET_KEY."""
    return Admin(
        namesrv=settings.ROCKETMQ_NAMESRV,
        cluster=settings.ROCKETMQ_CLUSTER,
        access_key=settings.ROCKETMQ_ACCESS_KEY,
        secret_key=settings.ROCKETMQ_SECRET_KEY,
    )


def differences(
    *,
    topics: Iterable[TopicSpec] | None = None,
    groups: Iterable[GroupSpec] | None = None,
    admin: Admin | None = None,
) -> list[Difference]:
    """Compare every master broker with the registry, and the name server's routes with both.

    Args:
        topics: by default the enabled topics of the registry.
        groups: by default the enabled groups of the registry.
        admin: by default from the settings.

    Raises:
        AdminError: name server or broker cannot be asked.

    Cost: two requests a broker and one a topic, milliseconds each.
    """
    admin = admin or admin_from_settings()
    wanted = _wanted(topics, groups)
    found: list[Difference] = []
    masters = admin.masters()
    for broker, address in masters.items():
        found += _compare(admin, broker, address, wanted)
    missing = {difference.name for difference in found if not difference.found}
    for name in wanted.topics:
        if name not in missing:
            for broker in sorted(set(masters) - admin.routed_brokers(name)):
                found.append(
                    Difference(broker=broker, kind="route", name=name, wanted="a route", found="")
                )
    return found


def provision(
    *,
    topics: Iterable[TopicSpec] | None = None,
    groups: Iterable[GroupSpec] | None = None,
    admin: Admin | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Difference]:
    """Make every master broker equal to the registry, then read it again.

    Args:
        topics: by default the enabled topics of the registry.
        groups: by default the enabled groups of the registry.
        admin: by default from the settings.
        tell: gets a line for each step.

    Returns:
        What was changed. A second run returns nothing.

    Raises:
        AdminError: name server or broker cannot be asked, or still differs afterwards.
    """
    admin = admin or admin_from_settings()
    wanted = _wanted(topics, groups)
    changed: list[Difference] = []
    for broker, address in admin.masters().items():
        todo = _compare(admin, broker, address, wanted)
        for difference in todo:
            tell(str(difference))
        _change(admin, address, wanted, todo)
        _start_at_the_beginning(admin, address, wanted)
        left = _compare(admin, broker, address, wanted)
        if left:
            raise AdminError(f"the broker did not take the change: {left[0]}")
        tell(
            f"{broker}: {len(wanted.topics)} topics and {len(wanted.groups)} groups as wanted, "
            f"{len(todo)} changed"
        )
        changed += todo
    _wait_for_routes(admin, wanted)
    return changed


def deprovision(prefix: str, *, admin: Admin | None = None) -> int:
    """Delete every topic and group of a prefix, with messages and offsets: for test runs.

    Returns:
        How many were deleted.
    """
    if len(prefix) < 4:
        raise ValueError("a prefix of fewer than four characters may be somebody else's too")
    admin = admin or admin_from_settings()
    deleted: set[str] = set()
    starts = (prefix, f"%DLQ%{prefix}", f"%RETRY%{prefix}")
    for address in admin.masters().values():
        for group in admin.groups(address):
            if group.startswith(prefix):
                admin.delete_group(address, group)
                deleted.add(group)
        for topic in admin.topics(address):
            if topic.startswith(starts):
                admin.delete_topic(address, topic)
                admin.forget_topic(topic)
                deleted.add(topic)
    return len(deleted)


def _wanted(topics: Iterable[TopicSpec] | None, groups: Iterable[GroupSpec] | None) -> _Wanted:
    topics = topology.enabled_topics() if topics is None else topics
    groups = (*topology.enabled_groups(), topology.DLQ_DRAIN) if groups is None else tuple(groups)
    wanted: dict[str, TopicSpec | None] = {
        topology.physical_topic(topic.name): topic for topic in topics
    }
    # Made now, so that the drain can subscribe to it before the first message dies.
    wanted.update({topology.dlq_topic(group.name): None for group in groups if group.topic})
    return _Wanted(
        topics=wanted, groups={topology.physical_group(group.name): group for group in groups}
    )


def _compare(admin: Admin, broker: str, address: str, wanted: _Wanted) -> list[Difference]:
    has_topics, has_groups = admin.topics(address), admin.groups(address)
    rows = [
        ("topic", name, _topic_text(*_terms(spec)), _found_topic(has_topics.get(name), spec))
        for name, spec in wanted.topics.items()
    ] + [
        ("group", name, f"{spec.max_retries} retries", _found_group(has_groups.get(name)))
        for name, spec in wanted.groups.items()
    ]
    return [
        Difference(broker=broker, kind=kind, name=name, wanted=want, found=found)
        for kind, name, want, found in rows
        if found != want
    ]


def _terms(spec: TopicSpec | None) -> tuple[str, int]:
    """Return type and number of queues; the broker itself makes dead letter topics with one."""
    return ("NORMAL", 1) if spec is None else (spec.type.value, spec.queues)


def _topic_text(type_name: str, queues: int) -> str:
    return f"{type_name}, {queues} queues"


def _found_topic(config: Mapping[str, Any] | None, spec: TopicSpec | None) -> str:
    if config is None:
        return ""
    type_name = (config.get("attributes") or {}).get(_TYPE, "NORMAL" if spec is None else "no type")
    queues = min(config["readQueueNums"], config["writeQueueNums"])
    # More queues than wanted is an operator's decision; fewer would hide messages.
    text = _topic_text(type_name, min(queues, _terms(spec)[1]))
    return text if config["perm"] == _READ_WRITE else f"{text}, permission {config['perm']}"


def _found_group(config: Mapping[str, Any] | None) -> str:
    if config is None:
        return ""
    text = f"{config['retryMaxTimes']} retries"
    return text if config.get("consumeEnable", True) else f"{text}, consuming disabled"


def _change(admin: Admin, address: str, wanted: _Wanted, todo: Sequence[Difference]) -> None:
    has = admin.topics(address)
    topics = [_topic_config(d.name, wanted.topics[d.name], has) for d in todo if d.kind == "topic"]
    groups = [
        {"groupName": d.name, "retryMaxTimes": wanted.groups[d.name].max_retries}
        for d in todo
        if d.kind == "group"
    ]
    if topics:
        admin.update_topics(address, topics)
    if groups:
        admin.update_groups(address, groups)


def _start_at_the_beginning(admin: Admin, address: str, wanted: _Wanted) -> None:
    """Give every group that never received its first offset.

    Without one, the first receive starts at the END of a topic whose oldest messages have left
    the broker's memory: whatever was sent before the first consumer came would be skipped.
    """
    known = admin.offsets(address)
    dead = [name for name, spec in wanted.topics.items() if spec is None]
    for group, spec in wanted.groups.items():
        for topic in [topology.physical_topic(spec.topic)] if spec.topic else dead:
            queues = _terms(wanted.topics.get(topic))[1]
            if topic in wanted.topics and (topic, group) not in known:
                for queue in range(queues):
                    admin.commit_offset(address, topic=topic, group=group, queue=queue, at=0)


def _topic_config(
    name: str, spec: TopicSpec | None, has: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    type_name, queues = _terms(spec)
    old = has.get(name, {})
    return {
        "topicName": name,
        "readQueueNums": max(queues, old.get("readQueueNums", 0)),
        "writeQueueNums": max(queues, old.get("writeQueueNums", 0)),
        "perm": _READ_WRITE,
        "topicFilterType": "SINGLE_TAG",
        "attributes": {f"+{_TYPE}": type_name},
    }


def _wait_for_routes(admin: Admin, wanted: _Wanted) -> None:
    """Wait until the name server leads every topic to every master: brokers tell it a bit later."""
    masters = set(admin.masters())
    deadline = time.monotonic() + _ROUTE_WAIT_S
    for name in wanted.topics:
        while not masters <= admin.routed_brokers(name):
            if time.monotonic() > deadline:
                raise AdminError(f"the name server still has no route for {name}")
            time.sleep(0.05)
