"""Receiving from RocketMQ: stub stream, batch ack, change of the invisible time.

One receiver = one topic of one group on one connection. Several threads may receive and ack at
the same time. Source: docs/messaging.md.
"""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import grpc

from messaging import topology
from messaging.broker.base import ReceivedMessage
from messaging.broker.outcome import OK
from messaging.broker.rocketmq_channel import Connection, new_client_id, protocol
from messaging.broker.rocketmq_decode import Answer, decode
from messaging.broker.rocketmq_session import Session
from messaging.errors import BrokerUnavailable

logger = logging.getLogger(__name__)

MAX_MESSAGES: Final = 32  # the broker gives no more in one answer
_MIN_POLL_S: Final = 5  # the proxy refuses a shorter deadline
_ANSWER_S: Final = 3.0
_SESSION_S: Final = 3.0
_CLOSE_S: Final = 0.5
_NO_MESSAGE: Final = 40_401
_UNKNOWN_CLIENT: Final = '"settings" is null'
_RESYNC_PAUSE_S: Final = 0.05


class RocketMQReceiver:
    """`Receiver` over gRPC."""

    def __init__(
        self,
        connection: Connection,
        *,
        group: str,
        topic: str,
        tags: Sequence[str] = (),
        beside: Sequence[str] = (),
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._physical_topic = topology.physical_topic(topic)
        # All members of a group must subscribe to the same topics.
        self._subscribed = sorted({self._physical_topic, *map(topology.physical_topic, beside)})
        self._physical_group = topology.physical_group(group)
        self._expression = " || ".join(tags) if tags else "*"
        self._client_id = new_client_id()
        self._channel = connection.channel()
        self._stub = protocol().stub(self._channel)
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._closed = False

    def receive(self, *, max_messages: int, invisible_s: int, wait_s: int) -> list[ReceivedMessage]:
        """Long-poll once.

        Args:
            max_messages: 1 to 32.
            invisible_s: seconds until an unacked message comes back (at least the proxy's minimum).
            wait_s: seconds; the proxy waits at least 5 and at most 20, whatever is asked.

        Returns:
            The messages, an empty list when none came.

        Raises:
            BrokerUnavailable: closed, no session, no connection, or an error answer.
        """
        request = self._receive_request(max_messages, invisible_s, wait_s)
        give_up_at = time.monotonic() + _SESSION_S
        while True:
            session = self._ready_session()
            called_at = time.monotonic()
            answer = self._poll(request, timeout_s=max(wait_s, _MIN_POLL_S) + _ANSWER_S)
            if answer.messages:
                return decode(
                    answer, topic=self._topic, called_at=called_at, invisible_s=invisible_s
                )
            if answer.code in (OK, _NO_MESSAGE):
                return []
            if _UNKNOWN_CLIENT not in answer.text or time.monotonic() > give_up_at:
                raise BrokerUnavailable(
                    f"receive from {self._physical_topic}: {answer.code} {answer.text}"
                )
            session.resync()
            time.sleep(_RESYNC_PAUSE_S)

    def ack(self, messages: Sequence[ReceivedMessage], *, timeout_ms: int) -> list[str]:
        """Ack a batch with one RPC.

        Returns:
            The ids whose ack is not known to have worked: all of them when the call failed.
        """
        if not messages:
            return []
        request = protocol().messages.AckMessageRequest()
        request.group.name = self._physical_group
        request.topic.name = self._physical_topic
        for message in messages:
            request.entries.add(
                message_id=message.message_id, receipt_handle=message.receipt_handle
            )
        try:
            answer = self._stub.AckMessage(
                request, timeout=timeout_ms / 1000, metadata=self._metadata()
            )
        except (grpc.RpcError, ValueError) as error:
            logger.warning("ack of %d messages failed: %s", len(messages), _text(error))
            return [message.message_id for message in messages]
        acked = {entry.receipt_handle for entry in answer.entries if entry.status.code == OK}
        lost = [m.message_id for m in messages if m.receipt_handle not in acked]
        if lost:
            logger.warning(
                "ack failed for %d of %d messages: %s %s",
                len(lost), len(messages), answer.status.code, answer.status.message,
            )  # fmt: skip
        return lost

    def change_invisible(self, message: ReceivedMessage, *, invisible_s: int) -> ReceivedMessage:
        """Move the end of the invisible time; 0 gives the message back at once.

        Returns:
            The message with its new handle; the old one is no longer good for an ack.

        Raises:
            BrokerUnavailable: nothing is known to have changed; go on with the old message.
        """
        request = protocol().messages.ChangeInvisibleDurationRequest()
        request.group.name = self._physical_group
        request.topic.name = self._physical_topic
        request.message_id = message.message_id
        request.receipt_handle = message.receipt_handle
        request.invisible_duration.seconds = invisible_s
        called_at = time.monotonic()
        try:
            answer = self._stub.ChangeInvisibleDuration(
                request, timeout=_ANSWER_S, metadata=self._metadata()
            )
        except (grpc.RpcError, ValueError) as error:
            raise BrokerUnavailable(f"change of invisible time: {_text(error)}") from None
        if answer.status.code != OK:
            raise BrokerUnavailable(
                f"change of invisible time: {answer.status.code} {answer.status.message}"
            )
        return replace(
            message,
            receipt_handle=answer.receipt_handle,
            invisible_until=called_at + invisible_s,
        )

    def close(self) -> None:
        """Stop receiving, say good-bye to the proxy (at most 0.5 s) and close the connection."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            session = self._session
        if session is not None:
            session.close()
            self._say_goodbye()
        self._channel.close()  # cancels a running receive
        if session is not None:
            session.join(_CLOSE_S)

    def _ready_session(self) -> Session:
        with self._lock:
            if self._closed:
                raise BrokerUnavailable("the receiver is closed")
            if self._session is None:
                self._session = Session(
                    connection=self._connection,
                    stub=self._stub,
                    client_id=self._client_id,
                    settings=self._client_settings(),
                )
            session = self._session
        if not session.wait_ready(_SESSION_S):
            raise BrokerUnavailable(
                f"no session for {self._physical_group} at {self._connection.endpoints}: "
                f"{session.last_problem}"
            )
        return session

    def _poll(self, request: Any, *, timeout_s: float) -> Answer:
        """Read one answer to its end; what came before an error still counts as delivered."""
        answer = Answer()
        try:
            call = self._stub.ReceiveMessage(request, timeout=timeout_s, metadata=self._metadata())
        except ValueError:
            raise BrokerUnavailable("the receiver is closed") from None
        try:
            for part in call:
                answer.take(part)
        except grpc.RpcError as error:
            if not answer.messages:
                raise BrokerUnavailable(
                    f"receive from {self._physical_topic}: {_text(error)}"
                ) from None
        return answer

    def _receive_request(self, max_messages: int, invisible_s: int, wait_s: int) -> Any:
        types = protocol().definitions
        request = protocol().messages.ReceiveMessageRequest()
        request.group.name = self._physical_group
        # Without a broker's name the proxy takes the next broker of the topic each time.
        request.message_queue.topic.name = self._physical_topic
        request.message_queue.id = -1
        request.message_queue.permission = types.Permission.READ_WRITE
        request.filter_expression.type = types.FilterType.TAG
        request.filter_expression.expression = self._expression
        request.batch_size = min(max_messages, MAX_MESSAGES)
        request.invisible_duration.seconds = invisible_s
        request.long_polling_timeout.seconds = wait_s
        return request

    def _client_settings(self) -> Any:
        types = protocol().definitions
        settings = types.Settings(client_type=types.ClientType.SIMPLE_CONSUMER)
        settings.request_timeout.FromMilliseconds(round(_ANSWER_S * 1000))
        subscription = settings.subscription
        subscription.group.name = self._physical_group
        for topic in self._subscribed:
            entry = subscription.subscriptions.add()
            entry.topic.name = topic
            entry.expression.type = types.FilterType.TAG
            entry.expression.expression = self._expression
        subscription.long_polling_timeout.seconds = _MIN_POLL_S
        settings.user_agent.language = types.Language.PYTHON
        settings.user_agent.version = protocol().version
        return settings

    def _say_goodbye(self) -> None:
        request = protocol().messages.NotifyClientTerminationRequest()
        request.group.name = self._physical_group
        try:
            self._stub.NotifyClientTermination(request, timeout=_CLOSE_S, metadata=self._metadata())
        except (grpc.RpcError, ValueError):
            logger.debug("the proxy did not take the good-bye; it forgets us after a while")

    def _metadata(self) -> list[tuple[str, str]]:
        return self._connection.metadata(self._client_id)


def _text(error: Exception) -> str:
    """Return status and text of a gRPC error without its many lines of debug output."""
    if isinstance(error, grpc.RpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
