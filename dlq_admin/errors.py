"""What the console's services raise (pure)."""


class DlqError(Exception):
    """Root of the tree; its text may be shown to the operator."""


class NoSuchRow(DlqError):
    """There is no such ticket, message or batch."""


class StaleState(DlqError):
    """The row is in another state than the transition needs."""


class PlanRefused(DlqError):
    """This cannot be planned like this; the text says why."""


class ApprovalRefused(DlqError):
    """This approval is not given; the text says why."""
