"""The table of error classes: by SQLSTATE and constraint, never by text."""

import psycopg
import psycopg.errors
import pytest
from django.db import utils as django_errors

from messaging.errors import BrokerUnavailable, PermanentError, StaleState, TransientError
from messaging.sqlstate import ErrorClass, classify, reason_of, sqlstate_of

TABLE = {
    ErrorClass.CONTENTION: ["40001", "40P01", "55P03", "40003"],
    ErrorClass.CONFLICT: ["23505"],
    ErrorClass.TRANSIENT: [
        "08000", "08003", "08006", "57P01", "57P02", "57P03", "57P05", "57014", "53000", "53100",
        "53200", "53300", "0A000", "25006", "25P03", "26000", "58030",
    ],
    ErrorClass.PERMANENT: [
        "22001", "22003", "22P02", "22021", "23502", "23503", "23514", "42703", "42P01", "42501",
        "54000",
    ],
    ErrorClass.UNKNOWN: ["XX000", "P0001", "25P02", "25001", "23000"],
}  # fmt: skip
CASES = [(code, kind) for kind, codes in TABLE.items() for code in codes]


def error_of(code: str, text: str = "") -> psycopg.Error:
    try:
        return psycopg.errors.lookup(code)(text)
    except KeyError:
        error = psycopg.DatabaseError(text)
        error.sqlstate = code
        return error


def wrapped(cause: Exception, kind: type[Exception] = django_errors.DatabaseError) -> Exception:
    try:
        try:
            raise cause
        except Exception as inner:
            raise kind("wrapped by Django") from inner
    except Exception as outer:
        return outer


@pytest.mark.parametrize(("code", "kind"), CASES)
def test_a_sqlstate_has_its_class_bare_and_wrapped_by_django(code: str, kind: ErrorClass) -> None:
    error = error_of(code, "duplicate key, deadlock, connection: text must not matter")

    assert classify(error) is kind
    assert classify(wrapped(error)) is kind
    assert sqlstate_of(wrapped(error)) == code
    assert reason_of(wrapped(error)) == f"SQLSTATE_{code}"


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("server closed the connection unexpectedly"),
        psycopg.InterfaceError("the connection is closed"),
        django_errors.OperationalError("consuming input failed"),
        django_errors.InterfaceError("connection already closed"),
        wrapped(psycopg.OperationalError("gone"), django_errors.OperationalError),
        ConnectionResetError(),
        TimeoutError(),
        TransientError("the gate is away"),
        BrokerUnavailable("no proxy"),
    ],
)
def test_a_lost_connection_is_transient_without_any_sqlstate(error: Exception) -> None:
    assert classify(error) is ErrorClass.TRANSIENT


def test_a_pool_time_out_is_transient() -> None:
    pool_timeout = type("PoolTimeout", (psycopg.OperationalError,), {"__module__": "psycopg_pool"})

    assert classify(pool_timeout("no connection after 1 s")) is ErrorClass.TRANSIENT


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), KeyError("x"), StaleState("x"), RuntimeError("the connection is closed")],
)
def test_what_nobody_knows_is_unknown(error: Exception) -> None:
    assert classify(error) is ErrorClass.UNKNOWN
    assert reason_of(error) == type(error).__name__


def test_another_operational_error_is_not_a_lost_connection() -> None:
    class OperationalError(Exception):
        """Of some other library."""

    assert classify(OperationalError()) is ErrorClass.UNKNOWN


def test_our_own_verdict_beats_the_database_error_that_caused_it() -> None:
    verdict = wrapped(error_of("40001"), lambda _: PermanentError("BAD", "x"))  # type: ignore[arg-type]

    assert classify(verdict) is ErrorClass.PERMANENT
    assert reason_of(verdict) == "BAD"


def test_a_context_counts_only_where_no_cause_was_named() -> None:
    def chained(*, suppress: bool) -> Exception:
        try:
            try:
                raise error_of("40001")
            except psycopg.Error:
                if suppress:
                    raise ValueError("x") from None
                raise ValueError("x")  # noqa: B904
        except ValueError as error:
            return error

    assert classify(chained(suppress=False)) is ErrorClass.CONTENTION
    assert classify(chained(suppress=True)) is ErrorClass.UNKNOWN


def test_a_circle_of_causes_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first

    assert classify(first) is ErrorClass.UNKNOWN
    assert sqlstate_of(first) == ""
