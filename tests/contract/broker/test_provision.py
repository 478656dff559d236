"""`provision_broker` on the real broker: creates, repairs, proves, and says what it cannot do."""

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from pytest_django import Settings

from messaging import topology
from messaging.provision import admin_from_settings, deprovision, differences, provision
from messaging.provision_remoting import Admin
from messaging.topology import TopicType
from tests.contract.broker.harness import Harness, collect, message, new_group, new_topic


@pytest.fixture
def prefix(settings: Settings) -> Iterator[str]:
    """A prefix of this test's own, deleted afterwards."""
    own = django_settings.SECKILL_TOPIC_PREFIX.replace("_SECKILL_", "_OWN_SECKILL_")
    settings.SECKILL_TOPIC_PREFIX = own
    yield own
    deprovision(own)


def test_the_command_makes_everything_once(prefix: str) -> None:
    before, first, second, after = StringIO(), StringIO(), StringIO(), StringIO()
    call_command("provision_broker", dry_run=True, stdout=before)
    with pytest.raises(CommandError, match="differences: run manage"):
        call_command("provision_broker", check=True, stdout=StringIO())

    call_command("provision_broker", stdout=first)
    call_command("provision_broker", stdout=second)
    call_command("provision_broker", check=True, stdout=after)

    topics, groups = topology.enabled_topics(), topology.enabled_groups()
    count = len(topics) + 2 * len(groups) + 1  # a dead letter topic for each group; their drain
    assert before.getvalue().count("missing, wanted") == count
    assert f", {count} changed" in first.getvalue()
    assert ", 0 changed" in second.getvalue()
    assert "everything as wanted" in after.getvalue()
    address = next(iter(admin_from_settings().masters().values()))
    has_topics, has_groups = (
        admin_from_settings().topics(address),
        admin_from_settings().groups(address),
    )
    for topic in topics:
        config = has_topics[topology.physical_topic(topic.name)]
        assert config["attributes"]["message.type"] == topic.type
        assert config["readQueueNums"] == config["writeQueueNums"] == topic.queues
    for group in groups:
        assert has_groups[topology.physical_group(group.name)]["retryMaxTimes"] == group.max_retries
        assert topology.dlq_topic(group.name) in has_topics
    drain = topology.physical_group(topology.CG_DLQ_DRAIN)
    assert has_groups[drain]["retryMaxTimes"] == 1000
    # Whatever died before the drain's first receive is read, too.
    dead = {(topology.dlq_topic(group.name), drain) for group in groups}
    assert dead <= admin_from_settings().offsets(address)


def test_what_differs_is_repaired_and_more_queues_are_left_alone(prefix: str) -> None:
    topic, wide = new_topic(), new_topic()
    group = new_group(topic.name, max_retries=5)
    wrong = replace(topic, type=TopicType.DELAY)
    provision(topics=[wrong, replace(wide, queues=8)], groups=[replace(group, max_retries=16)])

    found = differences(topics=[topic, wide], groups=[group])
    changed = provision(topics=[topic, wide], groups=[group])

    assert [(d.kind, d.found, d.wanted) for d in found] == [
        ("topic", "DELAY, 1 queues", "NORMAL, 1 queues"),
        ("group", "16 retries", "5 retries"),
    ]
    assert changed == found
    assert differences(topics=[topic, wide], groups=[group]) == []


def test_deprovision_deletes_its_prefix_and_nothing_else(prefix: str, provisioned: str) -> None:
    topic = new_topic()
    group = new_group(topic.name)
    provision(topics=[topic], groups=[group])

    assert deprovision(prefix) == 3
    assert {d.found for d in differences(topics=[topic], groups=[group])} == {""}
    assert deprovision(prefix) == 0
    with pytest.raises(ValueError, match="four characters"):
        deprovision("T")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ROCKETMQ_NAMESRV": ""}, "ROCKETMQ_NAMESRV is empty"),
        ({"ROCKETMQ_NAMESRV": "127.0.0.1:1"}, "127.0.0.1:1 does not answer"),
        ({"ROCKETMQ_NAMESRV": "nonsense"}, "nonsense does not answer"),
        ({"ROCKETMQ_CLUSTER": "elsewhere"}, "no broker of cluster elsewhere is registered"),
    ],
)
def test_a_wrong_address_is_one_line(settings: Settings, change: dict[str, str], says: str) -> None:
    for name, value in change.items():
        setattr(settings, name, value)

    with pytest.raises(CommandError, match=says) as error:
        call_command("provision_broker", stdout=StringIO())
    assert "\n" not in str(error.value)


def test_the_second_name_server_is_asked_when_the_first_is_away(provisioned: str) -> None:
    admin = admin_from_settings()
    both = Admin(namesrv=f"127.0.0.1:1;{admin.namesrv}", cluster=admin.cluster)

    assert both.masters() == admin.masters()


def test_a_group_that_never_received_begins_with_the_oldest_message(real: Harness) -> None:
    topic, group = new_topic(), new_group("")
    group = replace(group, topic=topic.name)
    provision(topics=[topic], groups=[group])
    admin = admin_from_settings()
    (address,) = admin.masters().values()
    pair = (topology.physical_topic(topic.name), topology.physical_group(group.name))

    assert pair in admin.offsets(address)


def test_the_committed_offset_is_where_the_first_receive_begins(real: Harness) -> None:
    """What the rule above relies on: receiving starts from the offset that provisioning set."""
    topic = real.topic()
    group = real.group(topic)
    sent = [message(topic) for _ in range(3)]
    producer = real.broker.producer()
    producer.send(sent, timeout_ms=3000)
    producer.close()
    admin = admin_from_settings()
    (address,) = admin.masters().values()
    admin.commit_offset(
        address,
        topic=topology.physical_topic(topic),
        group=topology.physical_group(group),
        queue=0,
        at=2,
    )

    with real.receiver(topic, group) as receiver:
        got = collect(receiver)
        receiver.ack(got, timeout_ms=3000)

    assert [m.message_id for m in got] == [sent[2].message_id]
