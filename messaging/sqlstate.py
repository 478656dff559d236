"""What an exception means for a message, by SQLSTATE and constraint name, never by its text (pure).

Neither Django nor psycopg is imported: both wrap the same facts (`sqlstate`, `diag`) that are read
along the chain of causes, and a lost connection is an Operational- or InterfaceError without one.
Source: https://www.postgresql.org/docs/current/errcodes-appendix.html
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from messaging.errors import BrokerUnavailable, PermanentError, TransientError


class ErrorClass(StrEnum):
    """What the consumer loop does about an exception."""

    CONTENTION = "CONTENTION"  # lost a race for a lock: 3 tries in place, then TRANSIENT
    CONFLICT = "CONFLICT"  # a unique key was taken: alone, 3 tries in place see the winner's row
    TRANSIENT = "TRANSIENT"  # nothing was decided: no ack, receive nothing until a probe passes
    PERMANENT = "PERMANENT"  # this message, alone, can never be applied: quarantine
    UNKNOWN = "UNKNOWN"  # retry by redelivery, bounded; quarantine at the last attempt


# Whole codes first, then classes (the first two characters).
_BY_CODE: Final = {
    "40001": ErrorClass.CONTENTION,  # serialization_failure
    "40P01": ErrorClass.CONTENTION,  # deadlock_detected
    "55P03": ErrorClass.CONTENTION,  # lock_not_available
    "23505": ErrorClass.CONFLICT,  # unique_violation
    "23502": ErrorClass.PERMANENT,  # not_null_violation
    "23503": ErrorClass.PERMANENT,  # foreign_key_violation
    "23514": ErrorClass.PERMANENT,  # check_violation
    "23P01": ErrorClass.PERMANENT,  # exclusion_violation
    "0A000": ErrorClass.TRANSIENT,  # "cached plan must not change result type" after a deploy
    "25006": ErrorClass.TRANSIENT,  # read_only_sql_transaction: still tied to a demoted primary
    "25P03": ErrorClass.TRANSIENT,  # idle_in_transaction_session_timeout
    "25P04": ErrorClass.TRANSIENT,  # transaction_timeout
    "26000": ErrorClass.TRANSIENT,  # invalid_sql_statement_name: the pooler gave another session
    "57014": ErrorClass.TRANSIENT,  # query_canceled: statement_timeout
    "55006": ErrorClass.TRANSIENT,  # object_in_use
}
_BY_CLASS: Final = {
    "08": ErrorClass.TRANSIENT,  # connection_exception
    "53": ErrorClass.TRANSIENT,  # insufficient_resources
    "57": ErrorClass.TRANSIENT,  # operator_intervention: shutdown, crash, cannot connect now
    "58": ErrorClass.TRANSIENT,  # system_error: I/O
    "40": ErrorClass.CONTENTION,  # transaction_rollback
    "22": ErrorClass.PERMANENT,  # data_exception
    "42": ErrorClass.PERMANENT,  # syntax_error_or_access_rule_violation
    "54": ErrorClass.PERMANENT,  # program_limit_exceeded
}
_CONNECTION_LOST: Final = frozenset({"OperationalError", "InterfaceError"})
_DATABASE_PACKAGES: Final = ("psycopg", "django.db", "psycopg_pool")


def classify(error: BaseException) -> ErrorClass:
    """Return what an exception means for the message (or batch) that raised it.

    Our own exceptions decide first, then the SQLSTATE, then a lost connection or a pool's time-out
    (database errors without a SQLSTATE), then the operating system's connection errors.
    """
    if isinstance(error, PermanentError):
        return ErrorClass.PERMANENT
    if isinstance(error, (TransientError, BrokerUnavailable)):
        return ErrorClass.TRANSIENT
    code = sqlstate_of(error)
    if code:
        return _BY_CODE.get(code) or _BY_CLASS.get(code[:2], ErrorClass.UNKNOWN)
    if any(_is_lost_connection(link) for link in _chain(error)):
        return ErrorClass.TRANSIENT
    if isinstance(error, (ConnectionError, TimeoutError)):
        return ErrorClass.TRANSIENT
    return ErrorClass.UNKNOWN


def sqlstate_of(error: BaseException) -> str:
    """Return the first SQLSTATE in the chain of causes, or an empty string."""
    for link in _chain(error):
        code = getattr(link, "sqlstate", None)
        if isinstance(code, str) and len(code) == 5:
            return code
    return ""


def reason_of(error: BaseException) -> str:
    """Return a stable code for quarantine rows and logs: no text of the error, no data."""
    if isinstance(error, PermanentError):
        return error.reason
    code = sqlstate_of(error)
    return f"SQLSTATE_{code}" if code else type(error).__name__


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and its causes; a context only where no cause was named."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _is_lost_connection(error: BaseException) -> bool:
    return any(
        kind.__name__ in _CONNECTION_LOST and kind.__module__.startswith(_DATABASE_PACKAGES)
        for kind in type(error).__mro__
    )
