"""`accept` and `sold-out`: what the hot path answers, without consumers."""

from typing import Any

from bench.answers import ACCEPTED, ALREADY, SOLD_OUT, Answers, sort_answers
from bench.bench import LIFTED, Bench, Outcome
from bench.generator import GeneratorFailed, latency
from bench.loadgen.plan import Plan
from seckill.demo.sale import Sale, make_sale, open_sale

_MOST_PER_S = 14_000  # users made for each second: nobody asks twice
_HOLDERS = 100
_WARM_UP_S = 10.0  # a broker's JVM that was just started sends batches five times slower


def accept(bench: Bench) -> Outcome:
    """Every connection posts for a new user each time; all are accepted.

    Who is asked to come again does, and his time goes on; the others need not wait for him.
    """
    connections = bench.connections or 200
    seconds = bench.wish.seconds or 10.0
    bench.start("web")
    place = make_sale(name="bench accept", stock=LIFTED, max_open=LIFTED, max_pending=LIFTED)
    open_sale(place)
    plan = Plan(
        port=bench.rig.port,
        path=place.path,
        connections=connections,
        seconds=seconds,
        warm_up_s=_WARM_UP_S,
        users=int((seconds + _WARM_UP_S) * _MOST_PER_S),
        retry=True,
    )
    result = _run(bench, plan)
    # Those whose turn would have come after the end: the time is over, nothing is lost.
    late = result["unanswered"]
    outcome = _outcome(result, sort_answers(result | {"unanswered": 0}), connections)
    outcome.rate_per_s = round(result["queued"] / result["seconds"], 1)
    outcome.more |= {"accepted": result["accepted"], "pending": result["pending"], "late": late}
    outcome.notes.append(
        f"consumers off; stock, max_open and max_pending lifted to {LIFTED};"
        f" {result['pending']} of {result['accepted']} were PENDING (not counted)"
    )
    if late:
        outcome.notes.append(f"{late} buyers were asked to come again after the end")
    return outcome


def sold_out(bench: Bench) -> Outcome:
    """All units are held; everybody else is told so, and holders are served again.

    The rate is that of the right answers: a stranger's SOLD_OUT, a holder's own reservation.
    """
    connections = bench.connections or 200
    seconds = bench.wish.seconds or 10.0
    bench.start("web")
    place = make_sale(name="bench sold out", stock=_HOLDERS, max_pending=LIFTED)
    open_sale(place)
    _hand_out(bench, place)
    plan = Plan(
        port=bench.rig.port,
        path=place.path,
        connections=connections,
        seconds=seconds,
        warm_up_s=1.0,
        users=20_000,
        cycle=True,
        holders=_HOLDERS,
        holder_every=100,
        keys=True,
    )
    result = _run(bench, plan)
    # Sorted apart: a holder told SOLD_OUT is wrong, and so is a stranger who gets a unit.
    holders: dict[str, int] = result["holder_codes"]
    strangers = {n: count - holders.get(n, 0) for n, count in result["codes"].items()}
    refused, asked = strangers.get(SOLD_OUT, 0), sum(holders.values())
    served = holders.get(ALREADY, 0) + holders.get(ACCEPTED, 0)
    wrong = {
        f"{name} to a {whom}": count
        for whom, codes, right in (
            ("stranger", strangers, (SOLD_OUT,)),
            ("holder", holders, (ALREADY, ACCEPTED)),
        )
        for name, count in codes.items()
        if count and name not in right
    }
    outcome = _outcome(result, sort_answers(result | {"codes": wrong}), connections)
    outcome.rate_per_s = round((refused + served) / result["seconds"], 1)
    outcome.more |= {"holders_asked": asked, "holders_served": served}
    outcome.notes.append(f"{served} of {asked} requests of holders named their reservation")
    return outcome


def _hand_out(bench: Bench, place: Sale) -> None:
    """Let the holders buy every unit."""
    plan = Plan(
        port=bench.rig.port,
        path=place.path,
        connections=10,
        seconds=30,
        users=_HOLDERS,
        user_prefix="holder-",
        retry=True,
    )
    with bench.load(plan, name="holders") as load:
        load.wait_ready()
        load.go()
        result = load.result(timeout_s=60)
    if result["accepted"] != _HOLDERS:
        raise GeneratorFailed(f"only {result['accepted']} units could be handed out: {result}")


def _run(bench: Bench, plan: Plan) -> dict[str, Any]:
    with bench.load(plan) as load:
        load.wait_ready(timeout_s=120)
        bench.say(f"{plan.connections} connections for {plan.seconds:.0f} s")
        load.go()
        result = load.result(timeout_s=plan.seconds + plan.warm_up_s + 60)
        return result | {"series": {"answers/s": load.rates("answers")}}


def _outcome(result: dict[str, Any], answers: Answers, connections: int) -> Outcome:
    return Outcome(
        rate_per_s=0.0,
        p50_ms=result["p50_ms"],
        p95_ms=result["p95_ms"],
        p99_ms=result["p99_ms"],
        errors=answers.errors,
        connections=connections,
        latency=latency(result),
        series=result["series"],
        more={
            "codes": result["codes"],
            "answers": answers.shown,
            "generator_cpu_s": result["cpu_s"],
        },
    )
