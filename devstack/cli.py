"""The command line of the stack."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from devstack.errors import StackError
from devstack.state import SERVICES

if TYPE_CHECKING:
    from devstack.stack import Stack

DESCRIPTION = "The embedded real stack: PostgreSQL 18, Redis 6.2, RocketMQ 5.5.0 from packages."
EPILOG = """\
environment:
  SECKILL_RUN_DIR     run folder (default: .run in the checkout)
  SECKILL_PORT_BASE   first of 12 ports in a row (default: free ones, chosen once and kept)
  DATABASE_URL, REDIS_URL, ROCKETMQ_ENDPOINTS (host:port[;host:port]), PAYMENT_PROVIDER_URL
                      servers of your own: that part is not started, yours is used; with
                      ROCKETMQ_ENDPOINTS give ROCKETMQ_NAMESRV, ROCKETMQ_ADMIN (path of
                      mqadmin) and ROCKETMQ_CLUSTER as well, with PAYMENT_PROVIDER_URL
                      PAYMENT_PROVIDER_KEY and SECKILL_WEBHOOK_SECRET
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``bin/stack``."""
    top = argparse.ArgumentParser(
        prog="bin/stack",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument(
        "--run-dir", type=Path, help="run folder; a second one is a second, private stack"
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")

    up = add("up", "start what is missing, wait until all serve, print the addresses")
    up.add_argument(
        "--appendfsync",
        choices=("always", "everysec"),
        help="Redis: fsync before every answer (always, the default) or once a second; remembered",
    )
    up.add_argument("--verify", action="store_true", help="check the sha256 of every jar again")
    add("down", "stop everything that was started here, keep the data")
    add(
        "reset",
        "stop everything and delete all data, ports, passwords and secrets (not the jar cache)",
    )
    status = add("status", "tell what is up")
    status.add_argument(
        "--json", action="store_true", help="for programs: services, addresses, run_dir"
    )
    add("env", 'print the addresses and secrets as shell exports: eval "$(bin/stack env)"')
    logs = add("logs", "print the end of the services' output")
    logs.add_argument("service", nargs="?", choices=SERVICES, help="only this one")
    logs.add_argument("-f", "--follow", action="store_true", help="go on printing what comes")
    logs.add_argument("-n", "--lines", type=int, default=20, help="lines of each (default 20)")
    for name, text in (
        ("start", "start one service and wait until it serves"),
        ("stop", "stop one service"),
        ("restart", "stop one service and start it again"),
    ):
        add(name, text).add_argument("service", choices=SERVICES)
    kill = add("kill", "send a signal to one service (for fault tests)")
    kill.add_argument("service", choices=SERVICES)
    kill.add_argument(
        "-s", "--signal", default="TERM", help="TERM (default), KILL, STOP, CONT … or a number"
    )
    kill.add_argument(
        "-9", dest="signal", action="store_const", const="KILL", help="the same as -s KILL"
    )
    for name, text in (
        ("psql", "run psql on the project's database"),
        ("redis-cli", "run redis-cli on the gate's database"),
        ("mqadmin", "run RocketMQ's admin tool"),
    ):
        tool = commands.add_parser(name, help=text, description=text, add_help=False)
        tool.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to the tool")
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    options, rest = parser().parse_known_args(arguments)
    if rest and options.command not in ("psql", "redis-cli", "mqadmin"):
        parser().error(f"unrecognized arguments: {' '.join(rest)}")
    options.rest = rest
    try:
        return run(options)
    except StackError as error:
        print(f"bin/stack: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # "bin/stack status | head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("bin/stack: interrupted; the same command goes on from here", file=sys.stderr)
        return 130


def run(options: argparse.Namespace) -> int:
    """Carry out one parsed command."""
    from devstack.stack import Stack

    stack = Stack(options.run_dir, environ=os.environ, port_base=_port_base())
    match options.command:
        case "up":
            return _up(stack, options)
        case "down" | "reset" | "start" | "stop" | "restart":
            return _change(stack, options)
        case "status":
            return _status(stack, as_json=options.json)
        case "env":
            for name, value in stack.environment().items():
                print(f"export {name}={shlex.quote(value)}")
        case "logs":
            return _logs(stack, options)
        case "kill":
            stack.kill(options.service, _signal(options.signal))
        case _:
            return _tool(stack, options.command, options.rest + options.arguments)
    return 0


def _port_base() -> int | None:
    value = os.environ.get("SECKILL_PORT_BASE")
    if value and not value.isdecimal():
        raise StackError(f"SECKILL_PORT_BASE={value} is not a number")
    return int(value) if value else None


def _signal(text: str) -> int:
    try:
        return (
            int(text)
            if text.isdecimal()
            else int(signal.Signals["SIG" + text.upper().removeprefix("SIG")])
        )
    except KeyError:
        raise StackError(f"no signal {text}: TERM, KILL, STOP, CONT … or a number") from None


def _up(stack: Stack, options: argparse.Namespace) -> int:
    from devstack.display import Display

    began = time.monotonic()
    with Display() as display:
        stack.tell = display.tell
        urls = stack.up(appendfsync=options.appendfsync, verify=options.verify)
    print(f"up after {time.monotonic() - began:.1f} s")
    for name, value in urls.items():
        print(f"  {name:<21} {value}")
    return 0


def _change(stack: Stack, options: argparse.Namespace) -> int:
    from devstack.display import Display

    with Display() as display:
        stack.tell = display.tell
        if options.command in ("down", "reset"):
            getattr(stack, options.command)()
        else:
            getattr(stack, options.command)(options.service)
    return 0


def _status(stack: Stack, *, as_json: bool) -> int:
    """Print the status; exit code 0 when everything of ours is up, else 1."""
    status = stack.status()
    if as_json:
        print(json.dumps(status, indent=2))
    else:
        for name, entry in status["services"].items():
            word = "external" if entry.get("external") else "up" if entry["up"] else "down"
            ports = " ".join(f"{key}={value}" for key, value in entry["ports"].items())
            since = entry["since"] or "-"
            print(f"{name:<9} {word:<9} pid {entry['pid'] or '-':<8} since {since:<26} {ports}")
        for name, value in stack.urls().items():
            print(f"  {name:<21} {value}")
        print(f"  {'run_dir':<21} {status['run_dir']}")
    return 0 if all(entry["up"] is not False for entry in status["services"].values()) else 1


def _logs(stack: Stack, options: argparse.Namespace) -> int:
    names = [options.service] if options.service else list(SERVICES)
    files = [str(path) for name in names if (path := stack.folder.log(name)).exists()]
    if not files:
        raise StackError("no logs yet: bin/stack up")
    command = ["tail", "-n", str(options.lines), *(["-F"] if options.follow else []), *files]
    try:
        return subprocess.run(command, check=False).returncode
    except KeyboardInterrupt:
        return 0


def _tool(stack: Stack, name: str, arguments: list[str]) -> int:
    """Become psql, redis-cli or mqadmin."""
    from devstack import packages

    urls = stack.urls()
    needed = {"psql": "DATABASE_URL", "redis-cli": "REDIS_URL", "mqadmin": "ROCKETMQ_ADMIN"}[name]
    if needed not in urls:
        raise StackError(f"{needed} is not known: bin/stack up, or set it")
    program = {
        "psql": [str(packages.postgres() / "bin" / "psql"), urls[needed]],
        "redis-cli": [str(packages.redis_cli()), "-u", urls[needed]],
        "mqadmin": [urls[needed]],
    }[name]
    sys.stdout.flush()
    os.execv(program[0], program + arguments)  # noqa: S606
