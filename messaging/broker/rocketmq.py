"""The real broker: RocketMQ 5 through its gRPC proxy. Import it only where a client is made."""

from collections.abc import Sequence

from messaging.broker.rocketmq_channel import Connection
from messaging.broker.rocketmq_producer import RocketMQAsyncProducer, RocketMQProducer
from messaging.broker.rocketmq_receiver import RocketMQReceiver


class RocketMQBroker:
    """`Broker` for one proxy address."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    def from_settings(cls) -> "RocketMQBroker":
        """Read the ROCKETMQ_* settings; nothing is connected yet."""
        return cls(Connection.from_settings())

    def producer(self) -> RocketMQProducer:
        """Return a new producer."""
        return RocketMQProducer(self._connection)

    def async_producer(self) -> RocketMQAsyncProducer:
        """Return a new producer for the running event loop."""
        return RocketMQAsyncProducer(self._connection)

    def receiver(
        self, *, group: str, topic: str, tags: Sequence[str] = (), beside: Sequence[str] = ()
    ) -> RocketMQReceiver:
        """Return a new receiver; its session opens at the first `receive`."""
        return RocketMQReceiver(
            self._connection, group=group, topic=topic, tags=tags, beside=beside
        )
