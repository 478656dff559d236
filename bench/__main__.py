"""`bin/bench SCENARIO`: measure one scenario on a fresh private stack, print and keep it.

With several numbers of connections, `--against` or `--quick` it starts itself once for each run.
"""

import argparse
import signal
import sys
from pathlib import Path
from typing import Final, NoReturn

from rich.console import Console

from bench import compare, plots, quick, record, runs
from bench.bench import Bench, Wish
from bench.calibration import calibrate
from bench.generator import GeneratorFailed
from bench.scenarios import SCENARIOS
from devstack.errors import StackError
from seckill.demo.supervision import StartFailed

_NUMBERS: Final = {  # option: (type, metavar, what, scenarios that take it)
    "seconds": (float, "N", "how long the load lasts, or how much backlog it makes", ()),
    "orders": (int, "N", "units, buyers or backlog instead of the scenario's own number",
               ("drain", "drain-full", "recovery", "growth", "sale", "burst", "hot-sku")),
    "rate": (float, "N", "buyers a second", ("steady", "memory")),
    "minutes": (float, "N", "how long the load lasts", ("steady", "memory")),
    "history": (int, "N", "old orders at the end, e.g. 10000000", ("growth",)),
    "warm-up": (int, "N", "buyers of the sale before the clock starts (default 20 000)",
                ("drain", "drain-full", "recovery", "growth", "sale", "burst", "hot-sku",
                 "steady", "memory", "overload")),
}  # fmt: skip
_DOCS: Final = "docs/benchmarks.md says what each scenario measures and how to read it."


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, SCENARIOS))
    listed = "\n".join(f"  {name:<{width}}  {s.about}" for name, s in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="bin/bench",
        description="Measure one scenario on a stack of its own, fresh each time.",
        epilog=f"scenarios:\n{listed}\n\n  plots{'':<{width - 5}}  draw the results kept in"
        " bench/results (or the FILEs of --json) as SVG into docs/images"
        f"\n\nThe load generator runs on the same machine. {_DOCS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", nargs="?", choices=[*SCENARIOS, "plots"], metavar="SCENARIO")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there as well")
    parser.add_argument(
        "--connections",
        type=_connections,
        default=[0],
        metavar="N[,N…]",
        help="of the load generator; several: one run for each, e.g. accept 10,50,200,1000",
    )
    for name, (kind, metavar, what, takers) in _NUMBERS.items():
        only = f" ({', '.join(takers)})" if takers else ""
        parser.add_argument(
            f"--{name}", type=kind, default=kind(0), metavar=metavar, help=what + only
        )
    parser.add_argument(
        "--appendfsync",
        choices=("always", "everysec"),
        default="always",
        help="Redis: fsync before every answer (default) or once a second",
    )
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help="measure another commit too, in turns: A B, B A, …; median of the ratios",
    )
    parser.add_argument("--pairs", type=int, default=3, metavar="N", help="of --against, default 3")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="short runs of the most telling scenarios, compared with the recorded ratios;"
        " exit status 1 and a warning where one is lower or wrong",
    )
    parser.add_argument(
        "--record", action="store_true", help="with --quick: make this run the recorded one"
    )
    return parser


def main(argv: list[str]) -> int:
    """Do what was asked for; return 0 when it could be measured and nothing was wrong."""
    parser = _parser()
    options = parser.parse_args(argv)
    _check(parser, options)
    signal.signal(signal.SIGTERM, _terminated)
    console = Console(highlight=False)
    try:
        if options.quick:
            return quick.run(console, scenario=options.scenario, keep=options.record)
        if options.scenario == "plots":
            return plots.draw_all(console, [options.json] if options.json else [])
        if options.against:
            return compare.run(
                console,
                scenario=options.scenario,
                arguments=_arguments(options, options.connections[0]),
                commit=options.against,
                pairs=options.pairs,
                target=options.json,
            )
        if len(options.connections) > 1:
            each = [_arguments(options, number) for number in options.connections]
            return runs.one_after_the_other(console, options.scenario, each, options.json)
        return _measure(console, options)
    except runs.RunFailed as error:
        sys.stderr.write(f"bin/bench: {error}\n")
        return 3
    except KeyboardInterrupt:
        return 130


def _measure(console: Console, options: argparse.Namespace) -> int:
    """Run one scenario here."""
    wish = Wish(
        scenario=options.scenario,
        connections=options.connections[0],
        appendfsync=options.appendfsync,
        **{name.replace("-", "_"): getattr(options, name.replace("-", "_")) for name in _NUMBERS},
    )
    bench = Bench(console, wish)
    scenario = SCENARIOS[wish.scenario]
    try:
        bench.say(f"{wish.scenario}: {scenario.about}")
        bench.say("setting up a fresh private stack")
        bench.set_up()
        from bench.scenarios.run import run  # Django may be imported from here on

        outcome = run(bench)
        bench.rig.stop_processes()
        bench.say("calibrating: echo, batch send, one-row commits")
        calibration = calibrate(
            folder=bench.folder,
            environment=bench.rig.environment,
            connections=outcome.connections,
        )
    except (StackError, StartFailed, GeneratorFailed) as error:
        sys.stderr.write(f"bin/bench: {error}\n")
        return 3
    finally:
        bench.tear_down()
    made = record.make_record(scenario, wish, outcome, calibration)
    record.show(console, scenario, made, outcome)
    record.keep(made, options.json)
    return 1 if record.wrong(made) else 0


def _arguments(options: argparse.Namespace, connections: int) -> list[str]:
    """Return the options of one run as words."""
    words = ["--appendfsync", options.appendfsync]
    if connections:
        words += ["--connections", str(connections)]
    for name in _NUMBERS:
        if value := getattr(options, name.replace("-", "_")):
            words += [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
    return words


def _connections(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with a message about options that do not go together."""
    if options.scenario is None and not options.quick:
        parser.error("name a scenario, or --quick")
    if options.record and not options.quick:
        parser.error("--record belongs to --quick")
    if options.quick and options.scenario not in (None, *quick.SHORT):
        parser.error(f"--quick has {', '.join(quick.SHORT)}")
    if options.against and (options.scenario == "plots" or len(options.connections) > 1):
        parser.error("--against takes one scenario with one number of connections")
    if min([options.pairs, *options.connections]) < 0 or options.pairs == 0:
        parser.error("--connections and --pairs must be positive")
    for name, (_, _, _, takers) in _NUMBERS.items():
        value = getattr(options, name.replace("-", "_"))
        if value < 0:
            parser.error(f"--{name} must be positive")
        if value and takers and options.scenario not in takers:
            parser.error(f"--{name} is for {', '.join(takers)}")


def _terminated(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
