"""Faults of the transport: duplicates in any order, lost messages, wrong configuration."""

import io
import random
import time
from typing import TYPE_CHECKING, Any, Final

from chaos.faults.scene import Scene
from chaos.plan import PlannedFault

if TYPE_CHECKING:
    from messaging.broker.base import OutgoingMessage

_COPIES: Final = 3
_READ_ONLY, _READ_WRITE = 4, 6
_SENT: Final = """
SELECT topic, tag, event_id, keys, payload, properties FROM messaging_outbox
 WHERE state = 1 AND payload IS JSON OBJECT AND (payload::jsonb ->> 'activity_id') = %s::text
 ORDER BY id
"""


def _storm(scene: Scene, fault: PlannedFault) -> str:
    """Send everything that this sale ever sent again, three times, shuffled."""
    from messaging.broker import broker
    from messaging.broker.base import SendOutcome

    copies = [*_order_messages(scene), *_outbox_messages(scene)] * _COPIES
    random.Random(scene.activity_id).shuffle(copies)
    producer = broker().producer()
    sent = 0
    try:
        for copy in copies:
            result = producer.send([copy], timeout_ms=2_000)
            sent += result.outcome is SendOutcome.CONFIRMED
    finally:
        producer.close()
    return "" if sent else "nothing had been sent yet"


def _order_messages(scene: Scene) -> "list[OutgoingMessage]":
    from inventory import verbs
    from inventory.gate import gate
    from orders.scan.resend import create_order_message

    ids = [
        str(row[0])
        for row in scene.sql(
            "SELECT reservation_id FROM orders_reservation WHERE activity_id = %s",
            scene.activity_id,
        )
    ]
    found = gate().run(verbs.reservations(activity_id=scene.activity_id, reservation_ids=ids))
    return [create_order_message(r, send_attempt=9) for r in found if r is not None]


def _outbox_messages(scene: Scene) -> "list[OutgoingMessage]":
    from messaging.broker.base import OutgoingMessage
    from messaging.topology import ORDER_TIMEOUT

    return [
        OutgoingMessage(
            topic=topic,
            tag=tag,
            message_id=event_id,
            keys=tuple(keys.split()),
            body=payload.encode(),
            properties={"message_id": event_id, "origin_topic": topic, **properties},
            # now: long before its time, which only the row may judge
            deliver_at_ms=1 if topic == ORDER_TIMEOUT else None,
        )
        for topic, tag, event_id, keys, payload, properties in scene.sql(_SENT, scene.activity_id)
    ]


def _lose(scene: Scene, fault: PlannedFault) -> str:
    """Join the order group as one more member that acks what it gets and does nothing."""
    from messaging.broker import broker
    from messaging.topology import CG_ORDER_CREATE, ORDER_CREATE

    receiver = broker().receiver(group=CG_ORDER_CREATE, topic=ORDER_CREATE)
    lost = 0
    try:
        deadline = time.monotonic() + fault.for_s
        while time.monotonic() < deadline:
            got = receiver.receive(max_messages=4, invisible_s=15, wait_s=1)
            if got:
                receiver.ack(got, timeout_ms=1_000)
            lost += len(got)
    finally:
        receiver.close()
    return "" if lost else "nothing was there to lose"


def _configs(scene: Scene, topic: str) -> tuple[Any, str, dict[str, Any]]:
    from messaging.provision import admin_from_settings
    from messaging.topology import physical_topic

    admin = admin_from_settings()
    ((_, broker),) = admin.masters().items()
    return admin, broker, admin.topics(broker)[physical_topic(topic)]


def _read_only(scene: Scene, fault: PlannedFault) -> str:
    admin, broker, config = _configs(scene, fault.target)
    attributes = {f"+{key}": value for key, value in config.get("attributes", {}).items()}
    admin.update_topics(broker, [{**config, "attributes": attributes, "perm": _READ_ONLY}])
    try:
        time.sleep(fault.for_s)
    finally:
        admin.update_topics(broker, [{**config, "attributes": attributes, "perm": _READ_WRITE}])
    return ""


def _removed(scene: Scene, fault: PlannedFault) -> str:
    from django.core.management import call_command

    from messaging.topology import physical_topic

    admin, broker, _ = _configs(scene, fault.target)
    name = physical_topic(fault.target)
    admin.delete_topic(broker, name)
    admin.forget_topic(name)
    try:
        time.sleep(fault.for_s)
    finally:
        call_command("provision_broker", stdout=io.StringIO())
    return ""


INJECTORS: Final = {
    "redelivery_storm": _storm,
    "messages_lost": _lose,
    "topic_read_only": _read_only,
    "topic_removed": _removed,
}
