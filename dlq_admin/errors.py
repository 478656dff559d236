"""What the console's services raise (pure). Missing permissions are Django's PermissionDenied."""


class DlqAdminError(Exception):
    """Root of the tree."""


class NotFound(DlqAdminError):
    """No such ticket, message, batch or plan."""


class GuardRefused(DlqAdminError):
    """A rule forbids it; the text tells the operator why, and what would have to be so."""


class StaleTicket(DlqAdminError):
    """The row was in another state by the time of the UPDATE; `status` tells which."""

    def __init__(self, status: str) -> None:
        super().__init__(f"the ticket is {status} by now: look at it again")
        self.status = status
