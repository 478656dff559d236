"""What both adapters refuse before anything leaves the process."""

from collections.abc import Sequence

from messaging import topology
from messaging.broker.base import FailureClass, OutgoingMessage, SendResult
from messaging.broker.outcome import failed


def refusal(messages: Sequence[OutgoingMessage]) -> SendResult | None:
    """Check a batch against the registry; None when it may be sent.

    Returns:
        A definite failure: UNKNOWN_TOPIC (configuration), or a bad message with EMPTY_BATCH,
        MIXED_TOPICS, BATCH_OF_TYPE (the broker stores only NORMAL messages as a batch),
        DUPLICATE_IDS, DELIVERY_TIME or UNKNOWN_TAG.
    """
    if not messages:
        return failed(FailureClass.BAD_MESSAGE, "EMPTY_BATCH")
    name = messages[0].topic
    try:
        spec = topology.topic_spec(name)
    except KeyError:
        return failed(FailureClass.CONFIGURATION, "UNKNOWN_TOPIC", name)
    if len(messages) > 1:
        if spec.type is not topology.TopicType.NORMAL:
            return failed(FailureClass.BAD_MESSAGE, "BATCH_OF_TYPE", spec.type)
        if any(message.topic != name for message in messages):
            return failed(FailureClass.BAD_MESSAGE, "MIXED_TOPICS", name)
        if len({message.message_id for message in messages}) != len(messages):
            return failed(FailureClass.BAD_MESSAGE, "DUPLICATE_IDS", name)
    delayed = spec.type is topology.TopicType.DELAY
    for message in messages:
        if (message.deliver_at_ms is not None) is not delayed:
            return failed(FailureClass.BAD_MESSAGE, "DELIVERY_TIME", name)
        if message.tag not in spec.tags:
            return failed(FailureClass.BAD_MESSAGE, "UNKNOWN_TAG", name)
    return None
