"""What both adapters refuse before anything leaves the process."""

from collections.abc import Sequence
from typing import Final

from messaging import topology
from messaging.broker.base import FailureClass, OutgoingMessage, SendResult
from messaging.broker.outcome import failed

MAX_BATCH: Final = 128
# A batch is stored as one record: over the broker's maxMessageSize (256 KiB in the dev stack,
# 4 MiB by default) it answers 50001, which proves nothing. So it is never let get that far.
MAX_BATCH_BYTES: Final = 224 * 1024
_RECORD_BYTES: Final = 256  # headers of one message in the record, generously


def weight(message: OutgoingMessage) -> int:
    """Return what one message takes of `MAX_BATCH_BYTES`."""
    texts = sum(len(key) + len(value) for key, value in message.properties.items())
    return _RECORD_BYTES + len(message.body) + texts + sum(map(len, message.keys))


def refusal(messages: Sequence[OutgoingMessage]) -> SendResult | None:
    """Check a batch against the registry; None when it may be sent.

    Returns:
        A definite failure: UNKNOWN_TOPIC (configuration), or a bad message with EMPTY_BATCH,
        MIXED_TOPICS, BATCH_OF_TYPE (the broker stores only NORMAL messages as a batch),
        BATCH_TOO_LARGE, DUPLICATE_IDS, DELIVERY_TIME or UNKNOWN_TAG.
    """
    if not messages:
        return failed(FailureClass.BAD_MESSAGE, "EMPTY_BATCH")
    name = messages[0].topic
    try:
        spec = topology.topic_spec(name)
    except KeyError:
        return failed(FailureClass.CONFIGURATION, "UNKNOWN_TOPIC", name)
    if len(messages) > 1:
        code = _batch_problem(messages, spec)
        if code:
            return failed(FailureClass.BAD_MESSAGE, code, name)
    delayed = spec.type is topology.TopicType.DELAY
    for message in messages:
        if (message.deliver_at_ms is not None) is not delayed:
            return failed(FailureClass.BAD_MESSAGE, "DELIVERY_TIME", name)
        if message.tag not in spec.tags:
            return failed(FailureClass.BAD_MESSAGE, "UNKNOWN_TAG", name)
    return None


def _batch_problem(messages: Sequence[OutgoingMessage], spec: topology.TopicSpec) -> str:
    if spec.type is not topology.TopicType.NORMAL:
        return "BATCH_OF_TYPE"
    if any(message.topic != spec.name for message in messages):
        return "MIXED_TOPICS"
    if len({message.message_id for message in messages}) != len(messages):
        return "DUPLICATE_IDS"
    if len(messages) > MAX_BATCH or sum(map(weight, messages)) > MAX_BATCH_BYTES:
        return "BATCH_TOO_LARGE"
    return ""
