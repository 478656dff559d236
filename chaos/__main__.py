"""`bin/chaos`: search for a breach, seed by seed."""

import argparse
import faulthandler
import json
import logging
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final, NoReturn

from rich.console import Console

from chaos import plan
from chaos.catalogue import NOT_TESTED
from chaos.machine import Machine
from devstack.errors import StackError
from seckill.demo.supervision import CHECKOUT, StartFailed

_HANGS_S: Final = 240.0
RUN_DIR: Final = CHECKOUT / ".run" / "chaos"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bin/chaos",
        description="Draws a sale and its faults from a seed, plays them on a real stack, and"
        " checks that every buyer, unit and cent is accounted for.",
        epilog="Exit code: 0 no breach, 1 a breach, 3 it could not run.",
    )
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="how many (default 10)")
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="S", help="the first")
    parser.add_argument("--seed", type=int, metavar="S", help="only this one: repeats a failure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    parser.add_argument("--no-jvm", action="store_true", help="leave the Java processes alone")
    parser.add_argument(
        "--prove", action="store_true", help="tamper with one more sale: the check must notice"
    )
    parser.add_argument(
        "--within", type=float, metavar="S", help="begin no seed but the first after S seconds"
    )
    parser.add_argument("--plan", action="store_true", help="only print what would be done")
    parser.add_argument(
        "--document", action="store_true", help="only write the table of docs/reliability.md anew"
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="append the lines there")
    parser.add_argument("--run-dir", type=Path, default=RUN_DIR, help="folder of the stack")
    return parser


def main(argv: list[str]) -> int:
    """Run the seeds; return 0 without a breach."""
    options = _parser().parse_args(argv)
    if options.seeds < 1 or options.first < 0:
        sys.stderr.write("bin/chaos: --seeds must be 1 or more, --from 0 or more\n")
        return 2
    seeds = (
        [options.seed]
        if options.seed is not None
        else list(range(options.first, options.first + options.seeds))
    )
    plans = [plan.draw(seed, jvm=not options.no_jvm) for seed in seeds]
    console = Console(highlight=False, soft_wrap=True)
    if options.plan:
        for one in plans:
            console.print(_about(one))
        return 0
    if options.document:
        from chaos.document import write_table

        write_table()
        return 0
    signal.signal(signal.SIGTERM, _terminated)
    last_begin = time.monotonic() + options.within if options.within else float("inf")
    machine = Machine(options.run_dir)
    try:
        console.print("starting a private stack and the product's processes …")
        machine.start()
        logging.disable(logging.WARNING)  # of this process: what the product does is in its logs
        records = search(machine, plans, console, record_to=options.record, last_begin=last_begin)
        proof = _prove(machine, plans[0], console) if options.prove else []
    except (StackError, StartFailed) as error:
        sys.stderr.write(f"bin/chaos: {error}\n")
        return 3
    except KeyboardInterrupt:
        return 130
    finally:
        machine.stop()
    result = _result(records, console) | {"proof": proof}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 1 if result["breaches"] else 0


def search(
    machine: Machine,
    plans: list[plan.Plan],
    console: Console,
    *,
    record_to: Path | None,
    last_begin: float,
) -> list[dict[str, Any]]:
    """Play the plans one after the other on one machine; each result is appended at once.

    Args:
        machine: started.
        plans: what to play.
        console: told about each.
        record_to: where the results go; the record of all runs when None.
        last_begin: on the monotonic clock; after it nothing begins but the first.
    """
    from chaos import results
    from chaos.seed import run

    version = results.commit()
    records: list[dict[str, Any]] = []
    for one in plans:
        if records and time.monotonic() > last_begin:
            break
        console.print(_about(one))
        began = time.monotonic()
        faulthandler.dump_traceback_later(_HANGS_S, repeat=True)
        try:
            record = results.as_record(one, run(machine, one), version=version)
        finally:
            faulthandler.cancel_dump_traceback_later()
        results.append(record, record_to or results.RUNS)
        records.append(record)
        console.print(
            f"  {record['accepted']} accepted, {record['orders']} orders,"
            f" {record['rejected']} rejected, rest after {record['rest_s']} s,"
            f" {time.monotonic() - began:.0f} s in all"
        )
        for fault in record["faults"]:
            if fault["note"]:
                console.print(f"  {fault['name']}: {fault['note']}", style="dim")
        for breach in record["breaches"]:
            console.print(f"  BREACH {breach}", style="red")
        if record["breaches"]:
            console.print(f"  repeat: bin/chaos --seed {one.seed}", style="bold")
    return records


def _prove(machine: Machine, one: plan.Plan, console: Console) -> list[str]:
    """Let the check look at a sale that was tampered with."""
    from chaos.seed import prove

    proof = prove(machine, one)
    console.print(f"a tampered sale: the check says {len(proof)} things")
    return proof


def _about(one: plan.Plan) -> str:
    faults = "; ".join(map(str, one.faults))
    return (
        f"seed {one.seed}: {len(one.buyers)} buyers, {one.skus} x {one.stock} units,"
        f" {len(one.operators)} operator steps; {faults}"
    )


def _result(records: list[dict[str, Any]], console: Console) -> dict[str, Any]:
    from chaos import results

    console.print(results.as_table(records))
    table = results.fault_table(records)
    gaps = results.gaps(table)
    for what, names in gaps.items():
        console.print(f"{what}: {', '.join(names) or 'nothing'}", style="dim")
    console.print("not tested:")
    for what, why in NOT_TESTED.items():
        console.print(f"  {what}: {why}", style="dim")
    breaches = [
        {"seed": record["seed"], "breach": breach, "repeat": f"bin/chaos --seed {record['seed']}"}
        for record in records
        for breach in record["breaches"]
    ]
    style = "red" if breaches else "green"
    console.print(f"{len(records)} seeds, {len(breaches)} breaches", style=style)
    return {
        "seeds": [record["seed"] for record in records],
        "breaches": breaches,
        "faults": table,
        "gaps": gaps,
        "not_tested": NOT_TESTED,
    }


def _terminated(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
