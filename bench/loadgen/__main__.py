"""Run one plan: `python -m bench.loadgen PLAN.json`.

Standard output is one JSON object a line: `{"ready": true}` when tokens are made and connections
are open; then it waits for a line `go` on standard input; `{"progress": …}` twice a second; at
last `{"result": …}`. A line `stop`, or the end of standard input, ends a run early. The secret that
signs the buyers' tokens is SECKILL_JWT_SECRET; without it requests carry no token.
"""

import asyncio
import gc
import os
import sys
import time
from pathlib import Path

import msgspec
import uvloop

from bench.loadgen.closed import ClosedLoop
from bench.loadgen.crowd import Crowd
from bench.loadgen.plan import Mode, Plan
from bench.loadgen.pool import Pool
from bench.loadgen.requests import RequestBuilder
from bench.loadgen.tally import Tally


def _say(**record: object) -> None:
    sys.stdout.write(msgspec.json.encode(record).decode() + "\n")
    sys.stdout.flush()


async def _commands() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def _report(driver: ClosedLoop | Crowd, started_ns: int) -> None:
    while True:
        await asyncio.sleep(0.5)
        tally = driver.tally
        _say(
            progress={
                "seconds": round((time.perf_counter_ns() - started_ns) / 1e9, 2),
                "sent": driver.sent,
                "answers": tally.answers,
                "accepted": len(tally.reservations),
                "codes": tally.codes,
                "errors": tally.errors,
            }
        )


async def _end_on_command(reader: asyncio.StreamReader, driver: ClosedLoop | Crowd) -> None:
    await reader.readline()  # `stop`, or the end of the parent
    driver.stop()


async def _run(plan: Plan) -> int:
    builder = RequestBuilder(
        plan,
        secret=os.environ.get("SECKILL_JWT_SECRET", ""),
        issuer=os.environ.get("SECKILL_JWT_ISSUER", ""),
        audience=os.environ.get("SECKILL_JWT_AUDIENCE", ""),
    )
    crowd = plan.mode is Mode.CROWD
    driver: ClosedLoop | Crowd = Crowd(plan, builder) if crowd else ClosedLoop(plan, builder)
    pool = Pool(plan, driver)
    commands = await _commands()
    try:
        await pool.open()
    except OSError as error:
        _say(error=f"cannot connect to {plan.host}:{plan.port}: {error.strerror or error}")
        return 1
    gc.collect()
    gc.freeze()
    gc.disable()  # one run makes little garbage in cycles; a pause would be counted as latency
    _say(ready=True)
    if (await commands.readline()).strip() != b"go":
        return 0
    started_ns = time.perf_counter_ns()
    tasks = [
        asyncio.ensure_future(pool.watch()),
        asyncio.ensure_future(_report(driver, started_ns)),
    ]
    tasks.append(asyncio.ensure_future(_end_on_command(commands, driver)))
    if isinstance(driver, Crowd):
        driver.arrive()
        tasks.append(asyncio.ensure_future(driver.tick()))
    pool.start()
    warm = Tally()
    if plan.warm_up_s:
        await asyncio.sleep(plan.warm_up_s)
        warm, started_ns = driver.restart_counts(), time.perf_counter_ns()
    try:
        await asyncio.wait_for(driver.finished.wait(), plan.seconds or None)
    except TimeoutError:
        driver.stop()
    await pool.settle()
    for task in tasks:
        task.cancel()
    seconds = max(driver.last_answer_ns - started_ns, 1) / 1e9
    result = driver.tally.result(seconds=seconds, unanswered=driver.unanswered)
    if plan.ids_file:
        ids = {**warm.reservations, **driver.tally.reservations}
        Path(plan.ids_file).write_bytes(b"".join(key + b"\n" for key in ids))
    pool.close()
    _say(
        result=msgspec.to_builtins(result)
        | {
            "first_sent_epoch_s": driver.first_sent_epoch_s,
            "accepted_in_warm_up": len(warm.reservations),
            "cpu_s": round(time.process_time(), 2),
        }
    )
    return 0


def main(argv: list[str]) -> int:
    """Run the plan in the named file."""
    if len(argv) != 1:
        sys.stderr.write("usage: python -m bench.loadgen PLAN.json\n")
        return 2
    plan = msgspec.json.decode(Path(argv[0]).read_bytes(), type=Plan)
    return uvloop.run(_run(plan))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
