"""Exit codes of the loops, each with one meaning: a supervisor's log tells what happened."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What ended a worker process."""

    OK = 0  # told to stop, or --once was done
    LOOP_CRASHED = 70  # a loop raised what it should have handled
    HUNG = 71  # the watchdog saw no progress; all stacks are on stderr
    GRACE_EXCEEDED = 72  # told to stop, but work in flight did not end in time
    DATABASE_UNREACHABLE = 73
    BROKER_UNREACHABLE = 74
    MIGRATIONS_MISSING = 75
    CHECKS_FAILED = 76
    CONFIGURATION = 78  # a setting or argument is wrong
    SECOND_SIGNAL = 130  # told to stop twice: ended at once
