"""The small tree of what business code may raise to the consumer loop (pure)."""


class MessagingError(Exception):
    """Root of the tree."""


class TransientError(MessagingError):
    """Nothing was decided; the message may succeed later. Stops receiving until a probe passes."""


class PermanentError(MessagingError):
    """This message can never be applied: it goes to quarantine with `reason`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class StaleState(MessagingError):
    """A guarded transition found its row in another state."""


class BrokerUnavailable(MessagingError):
    """The broker could not be asked: nothing was received or acked."""
