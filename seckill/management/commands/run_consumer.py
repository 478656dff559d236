"""`manage.py run_consumer GROUP…`: consume one or more groups, a loop thread each."""

import sys
from argparse import ArgumentParser
from functools import partial
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from messaging.broker import broker
from messaging.consumer import run_loop
from messaging.exit_codes import ExitCode
from messaging.pulse import Pulse
from messaging.startup import leave_unless_ready
from messaging.topology import CG_ORDER_CREATE, GroupSpec, enabled_groups
from messaging.worker import Loop, StopSignal, leave, serve
from seckill.bootstrap import dlq_drain, handlers, replayer
from seckill.governor.loops import loop_pace, wait_for_work


class Command(BaseCommand):
    help = (
        "Consume groups until SIGTERM: finishes what is in flight, exits 0 within 10 s; a second "
        "signal exits at once. GROUP is a registry name, or short: order-create, order-timeout, "
        "inventory-compensate, order-query-projection, audit, settlement, points, invoice, notify, "
        "risk."
    )
    requires_system_checks = ()  # leave_unless_ready runs those that concern a loop

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("groups", nargs="*", metavar="GROUP", help="groups to consume")
        parser.add_argument("--all-core", action="store_true", help="all core groups")
        parser.add_argument("--side", action="store_true", help="all groups that are not core")
        parser.add_argument(
            "--dlq-drain", action="store_true", help="bring dead messages to the desk as well"
        )
        parser.add_argument(
            "--replay", action="store_true", help="execute approved replays as well"
        )
        parser.add_argument("--once", action="store_true", help="one receive per group, then exit")

    def handle(self, *args: Any, **options: Any) -> None:
        specs = _groups(options["groups"], all_core=options["all_core"], side=options["side"])
        leave_unless_ready("run_consumer", self.stderr)
        loops = [loop for spec in specs for loop in _loops(spec, once=options["once"])]
        if options["dlq_drain"]:
            loops += dlq_drain(broker(), once=options["once"])
        if options["replay"]:
            loops += replayer(once=options["once"])
        code = serve(role="consumer", loops=loops)
        if not options["once"]:
            leave(code)
        if code is not ExitCode.OK:
            sys.exit(code)


def _groups(names: list[str], *, all_core: bool, side: bool) -> list[GroupSpec]:
    known = {spec.name: spec for spec in enabled_groups()}
    short = {_short(name): spec for name, spec in known.items()}
    found = [spec for spec in known.values() if (all_core if spec.core else side)]
    for name in names:
        spec = known.get(name) or short.get(name)
        if spec is None:
            raise CommandError(
                f"no such group: {name}; there are {', '.join(sorted(short))}",
                returncode=ExitCode.CONFIGURATION,
            )
        found.append(spec)
    if not found:
        raise CommandError("name at least one group", returncode=ExitCode.CONFIGURATION)
    return list(dict.fromkeys(found))


def _short(name: str) -> str:
    """CG_SECKILL_ORDER_CREATE_PG_V1 → order-create."""
    core = name.removeprefix("CG_SECKILL_").removesuffix("_V1").removesuffix("_PG")
    return core.lower().replace("_", "-")


def _loops(spec: GroupSpec, *, once: bool) -> list[Loop]:
    """Return a group's loops: several for the order group, of which the governor lets some work."""
    most = settings.SECKILL_CONSUMER_WORKERS_MAX if spec.name == CG_ORDER_CREATE else 1
    return [_loop(spec, number=number, once=once) for number in range(1 if once else most)]


def _loop(spec: GroupSpec, *, number: int, once: bool) -> Loop:
    handler = handlers()[spec.name]
    pace = partial(loop_pace, spec.name, number=number)

    def run(stop: StopSignal, pulse: Pulse) -> None:
        if number:
            wait_for_work(pace, stop, pulse)  # no connection before it is needed
        if stop.is_set():
            return
        receiver = broker().receiver(group=spec.name, topic=spec.topic, tags=spec.tags)
        run_loop(spec, handler, receiver, stop, pulse=pulse, pace=pace, once=once)

    name = _short(spec.name)
    return Loop(name=f"{name}-{number + 1}" if number else name, group=spec.name, run=run)
