"""The registry is a gate: each rule is broken once, and the check names it."""

from dataclasses import replace
from typing import Any

import pytest

from messaging import topology
from messaging.checks import check_registry, problems
from messaging.topology import GroupSpec, TopicSpec, TopicType

TOPIC = topology.topic_spec(topology.ORDER_CREATE)
GROUP = topology.group_spec(topology.CG_ORDER_CREATE)


def _codes(
    topics: list[TopicSpec] | None = None,
    groups: list[GroupSpec] | None = None,
    prefix: str = "DEV_SECKILL_",
) -> list[str]:
    found = problems(topics=topics or [TOPIC], groups=groups or [GROUP], prefix=prefix)
    return [code for code, *_ in found]


def test_the_registry_itself_is_sound() -> None:
    assert check_registry() == []


def test_an_error_names_the_rule_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = replace(TOPIC, if_lost="")
    monkeypatch.setattr(topology, "TOPICS", (silent, *topology.TOPICS[1:]))

    (error,) = check_registry()

    assert error.id == "messaging.E004"
    assert error.msg == "topic ORDER_CREATE_V1: `if_lost` has no answer"
    assert error.hint


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"if_lost": ""}, "E004"),
        ({"if_doubled": "?"}, "E004"),
        ({"if_out_of_order": " "}, "E004"),
        ({"if_piled_up": "TODO"}, "E004"),
        ({"owner": ""}, "E005"),
        ({"owner": "somebody"}, "E005"),
        ({"durability": "ASYNC_FLUSH"}, "E006"),
        ({"tags": ()}, "E007"),
        ({"queues": 0}, "E009"),
        ({"queues": 1000}, "E009"),
        ({"type": TopicType.FIFO}, "E010"),
        ({"type": TopicType.TRANSACTION}, "E010"),
        ({"type": TopicType.DELAY}, "E010"),
    ],
)
def test_a_topic_that_breaks_a_rule(change: dict[str, Any], code: str) -> None:
    assert code in _codes(topics=[replace(TOPIC, **change)])


@pytest.mark.parametrize("tag", ["ORDER_10001", "sku_20001", "create", "A B", "", "V1"])
def test_a_tag_with_an_id_or_odd_letters(tag: str) -> None:
    assert "E008" in _codes(topics=[replace(TOPIC, tags=("CREATE_ORDER", tag))])


@pytest.mark.parametrize(
    "name",
    ["order_create_v1", "ORDER_CREATE", "ORDER_10001_V1", "ORDER-CREATE_V1", "A" * 130 + "_V1"],
)
def test_a_topic_with_an_illegal_name(name: str) -> None:
    topic = replace(TOPIC, name=name)

    assert "E003" in _codes(topics=[topic], groups=[replace(GROUP, topic=name)])


@pytest.mark.parametrize(
    ("name", "type_", "sound"),
    [
        ("ORDER_STATE_FIFO_V1", TopicType.FIFO, True),
        ("ORDER_STATE_FIFO_V1", TopicType.NORMAL, False),
        ("ORDER_STATE_V1", TopicType.FIFO, False),
        ("RESERVATION_TX_V1", TopicType.TRANSACTION, True),
        ("RESERVATION_TX_V1", TopicType.NORMAL, False),
        ("ORDER_TIMEOUT_V1", TopicType.DELAY, True),
        ("ORDER_TIMEOUT_V1", TopicType.NORMAL, False),
        ("ORDER_LATER_V1", TopicType.DELAY, False),
    ],
)
def test_name_and_type_go_together(name: str, type_: TopicType, sound: bool) -> None:
    topic = replace(TOPIC, name=name, type=type_)

    assert ("E011" not in _codes(topics=[topic], groups=[replace(GROUP, topic=name)])) is sound


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"name": "ORDER_CREATE"}, "E012"),
        ({"name": "CG_SECKILL_SKU_20001_V1"}, "E012"),
        ({"max_retries": 0}, "E013"),
        ({"max_retries": 17}, "E013"),
        ({"idempotency": " "}, "E014"),
        ({"schema_versions": ()}, "E014"),
        ({"topic": "NOWHERE_V1"}, "E015"),
        ({"tags": ("NO_SUCH_TAG",)}, "E017"),
        ({"tags": ()}, "E017"),
    ],
)
def test_a_group_that_breaks_a_rule(change: dict[str, Any], code: str) -> None:
    assert code in _codes(groups=[replace(GROUP, **change)])


def test_only_a_drain_may_retry_a_thousand_times() -> None:
    drain = replace(GROUP, name="CG_SECKILL_DLQ_DRAIN_V1", max_retries=1000)

    assert _codes(groups=[drain]) == []
    assert "E013" in _codes(groups=[replace(drain, name=GROUP.name)])


def test_an_enabled_group_needs_an_enabled_topic_and_the_reverse() -> None:
    assert _codes(topics=[replace(TOPIC, enabled=False)]) == ["E015"]
    assert _codes(groups=[replace(GROUP, enabled=False)]) == ["E016"]


def test_names_are_unique() -> None:
    assert _codes(topics=[TOPIC, TOPIC]) == ["E002"]
    assert _codes(groups=[GROUP, GROUP]) == ["E002"]


@pytest.mark.parametrize("prefix", ["", "dev_seckill_", "SECKILL_", "DEV_", "DEV_SECKILL"])
def test_a_prefix_that_does_not_name_the_environment(prefix: str) -> None:
    assert _codes(prefix=prefix) == ["E001"]


@pytest.mark.parametrize("prefix", ["PROD_SECKILL_", "DEV_SECKILL_", "T1A2B3_SECKILL_"])
def test_a_prefix_that_is_good(prefix: str) -> None:
    assert _codes(prefix=prefix) == []
