"""The errors that a person at the terminal sees: one line, what is wrong and what to do."""


class StackError(Exception):
    """Something keeps the stack from doing what was asked; the text is one line for a person."""

    exit_code = 1


class PortTaken(StackError):
    """A port that was asked for explicitly belongs to somebody else."""

    exit_code = 2


class FetchFailed(StackError):
    """A RocketMQ jar could not be fetched or is not the file in the lock list."""

    exit_code = 3


class ExternalUnreachable(StackError):
    """A service named in the environment does not answer."""

    exit_code = 4
