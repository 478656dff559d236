"""What plans, approvals and batches raise besides the console's own (pure)."""

from dlq_admin.errors import GuardRefused


class PlanRefused(GuardRefused):
    """This cannot be planned, or done to a batch, like this."""


class ApprovalRefused(GuardRefused):
    """This approval is not given."""


class StaleState(GuardRefused):
    """The batch is in another state than the transition needs: look at it again."""
