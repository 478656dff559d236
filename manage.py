#!/usr/bin/env python3
"""Django's command line: `./manage.py help` lists what there is."""

import os
import sys

from inventory.errors import GateUnavailable
from messaging.exit_codes import ExitCode
from messaging.sqlstate import sqlstate_of

# SQLSTATEs of a connection that failed: lost, too many, the server stops or starts.
_AWAY = ("08", "53300", "57P")
_LOOK = "look at it, then run this again (--traceback tells where it happened)"


def main() -> None:
    """Run one management command. A store that is away is one line, unless --traceback is given."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill.settings")
    from django.core.management import execute_from_command_line
    from django.db import InterfaceError, OperationalError

    try:
        execute_from_command_line(sys.argv)
    except (OperationalError, InterfaceError) as error:
        code = sqlstate_of(error)
        reached = code and not code.startswith(_AWAY)  # a lock, a statement's time: it was there
        if reached or "--traceback" in sys.argv:
            raise
        first = (str(error).splitlines() or [type(error).__name__])[0]
        sys.stderr.write(f"PostgreSQL cannot be reached (DATABASE_URL): {first}; {_LOOK}\n")
        sys.exit(ExitCode.DATABASE_UNREACHABLE)
    except GateUnavailable as error:
        if "--traceback" in sys.argv:
            raise
        sys.stderr.write(f"the gate did not answer (REDIS_URL): {error}; {_LOOK}\n")
        sys.exit(os.EX_TEMPFAIL)  # 75, as rebuild_gate


if __name__ == "__main__":
    main()
