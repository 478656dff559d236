"""Tickets."""


def items_started(*, ticket_id: int) -> None:
    """The first item was claimed."""


def items_finished(*, ticket_id: int) -> None:
    """All items are terminal."""
