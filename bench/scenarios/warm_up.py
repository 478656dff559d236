"""Before a clock starts: a fresh JVM is several times slower than one that has worked a while."""

from typing import Final

from django.db import connection

from bench.audit import wait_for_orders
from bench.bench import LIFTED, Bench
from bench.loadgen.plan import Plan
from messaging.outbox import LANE_TIMEOUTS
from seckill.demo.sale import make_sale, open_sale

BUYERS: Final = 20_000


def warm_up(bench: Bench) -> None:
    """Let a crowd through the whole path of another sale; every program must run.

    Its cancel triggers are dropped, unsent: held back for a minute as they are, they would be sent
    in the middle of what is measured.
    """
    buyers = bench.wish.warm_up or BUYERS
    bench.say(f"warming up: {buyers} buyers of another sale")
    place = make_sale(name="bench warm-up", stock=LIFTED)
    open_sale(place)
    plan = Plan(
        port=bench.rig.port,
        path=place.path,
        connections=100,
        seconds=60,
        users=buyers,
        user_prefix="early-",
        retry=True,
    )
    with bench.load(plan, name="warm-up") as load:
        load.wait_ready()
        load.go()
        result = load.result(timeout_s=90)
    wait_for_orders(bench, place, result["accepted"], timeout_s=90, rest=True)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM messaging_outbox WHERE lane = %s", [LANE_TIMEOUTS])
        cursor.execute("VACUUM ANALYZE")
