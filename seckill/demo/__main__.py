"""`bin/demo`: set up, sell, audit, show where to look."""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from devstack.display import Display
from devstack.errors import StackError
from devstack.stack import Stack
from seckill.demo.observe import Observation
from seckill.demo.rig import ADMIN, Rig
from seckill.demo.supervision import Program, StartFailed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bin/demo",
        description="A whole flash sale on the real stack: set up, run, audit.",
        epilog="Without --exit everything stays up until Ctrl-C, for you to look around.",
    )
    parser.add_argument("--buyers", type=int, default=20_000, help="the crowd (default 20000)")
    parser.add_argument("--stock", type=int, default=1_000, help="units on sale (default 1000)")
    parser.add_argument("--exit", action="store_true", help="stop everything at the end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    parser.add_argument(
        "--incident",
        action="store_true",
        help="let the sale go wrong and leave its dead messages to you: docs/operations/dlq.md",
    )
    parser.add_argument(
        "--observe",
        action="store_true",
        help="run a real Prometheus beside it, with the alert rules: docs/observability.md",
    )
    return parser


def main(argv: list[str]) -> int:
    """Run the demo; return 0 without a breach, 1 with one, 2 or more when it could not run."""
    options = _parser().parse_args(argv)
    if options.buyers < 1 or options.stock < 1:
        sys.stderr.write("bin/demo: --buyers and --stock must be 1 or more\n")
        return 2
    signal.signal(signal.SIGTERM, _terminated)
    console = Console(highlight=False)
    rig = Rig(
        Stack(environ=os.environ),
        name="demo",
        environment={"SECKILL_LOG_LEVEL": os.environ.get("SECKILL_LOG_LEVEL", "WARNING")},
    )
    try:
        return _run(rig, console, options)
    except (StackError, StartFailed) as error:
        sys.stderr.write(f"bin/demo: {error}\n")
        return getattr(error, "exit_code", 3)
    except KeyboardInterrupt:
        console.print("stopping …")
        return 130
    finally:
        rig.stop_processes()
        if options.exit:
            rig.stop_servers()


def _run(rig: Rig, console: Console, options: argparse.Namespace) -> int:
    began = time.monotonic()
    console.print("1/4  PostgreSQL, Redis and RocketMQ: seconds; the first time some minutes")
    with Display() as display:
        rig.start_servers(tell=display.tell)
    console.print("2/4  tables, topics and consumer groups: seconds")
    rig.prepare()
    console.print("3/4  the processes: web, consumers, sender, scanner, schedules")
    observation = Observation(rig.folder) if options.observe else None
    _start(rig, incident=options.incident, observation=observation)
    rig.wait_web()
    rig.wait_workers()
    count, megabytes = rig.supervisor.python_memory_mb()
    console.print(
        f"     {count} Python processes, {megabytes} MB; ready after"
        f" {time.monotonic() - began:.0f} s; logs in {rig.supervisor.logs}",
        soft_wrap=True,
    )
    console.print(f"4/4  the sale: {options.buyers} buyers, {options.stock} units")
    console.print(
        f"     watch it live: {rig.base_url}/admin/monitor/   {ADMIN} / {rig.admin_password}",
        soft_wrap=True,
    )
    result = (_go_wrong if options.incident else _sell)(rig, console, options)
    if observation is not None:
        fired = ", ".join(observation.fired()) or "none"
        console.print(f"alerts         {fired}; Prometheus {observation.url}", soft_wrap=True)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if not options.exit:
        _stay(rig, console, result["activity"], incident=options.incident)
    return 1 if result["breaches"] else 0


def _start(rig: Rig, *, incident: bool, observation: Observation | None) -> None:
    from seckill.demo.incident import faulty_build, fixed_build

    def adapt(program: Program) -> Program:
        program = faulty_build(program) if incident else program
        return observation.adapt(program) if observation else program

    def more(programs: tuple[Program, ...]) -> tuple[Program, ...]:
        found = fixed_build(programs) if incident else ()
        if observation is None:
            return found
        broker = rig.environment.get("ROCKETMQ_METRICS_URL", "")
        return (*found, observation.more(programs, web_port=rig.port, broker=broker))

    rig.start(adapt=adapt, more=more)


def _go_wrong(rig: Rig, console: Console, options: argparse.Namespace) -> dict[str, object]:
    from seckill.demo import incident

    told = incident.unfold(rig, console, buyers=options.buyers, stock=options.stock)
    result = incident.report(told, environment=rig.environment)
    console.print()
    incident.show(console, told, result, base_url=rig.base_url)
    return result


def _sell(rig: Rig, console: Console, options: argparse.Namespace) -> dict[str, object]:
    from seckill.demo.result import audit, show
    from seckill.demo.story import tell

    told = tell(rig, console, buyers=options.buyers, stock=options.stock)
    result = audit(told, environment=rig.environment)
    crashes = rig.supervisor.crashes()
    for name, count in crashes.items():
        console.print(f"{name} ended {count} times and was started again: see its log")
    console.print()
    show(console, result)
    return result


def _stay(rig: Rig, console: Console, activity: object, *, incident: bool) -> None:
    """Leave everything up until Ctrl-C."""
    console.print()
    console.print(f"activity page  {rig.base_url}/activities/{activity}/")
    console.print(f"admin          {rig.base_url}/admin/   {ADMIN} / {rig.admin_password}")
    console.print(f"live monitor   {rig.base_url}/admin/monitor/?wall")
    console.print(f"API docs       {rig.base_url}/api/docs")
    console.print(f"logs           {rig.supervisor.logs}", soft_wrap=True)
    console.print("Ctrl-C stops the processes; bin/stack down stops the servers.", style="bold")
    try:
        if incident:
            from seckill.demo.incident import wait_to_deploy

            wait_to_deploy(rig, console)
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        console.print("stopping the processes …")


def _terminated(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
