"""The buyers: a load generator process with the habits of a crowd."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.generator import Generator
from bench.loadgen.plan import Mode, Plan
from seckill.demo.sale import Sale

CONNECTIONS: Final = 200


def crowd(
    sale: Sale, *, buyers: int, port: int, folder: Path, environment: Mapping[str, str]
) -> Generator:
    """Start the process of the crowd; its buyers wait outside until `go`.

    A tenth clicks many times, one in twenty sends the same click three times with one key, four of
    five try again after 503, and who was told "sold out" looks again every few seconds.
    """
    plan = Plan(
        port=port,
        path=sale.path,
        mode=Mode.CROWD,
        connections=min(CONNECTIONS, max(10, buyers // 10)),
        users=buyers,
        seconds=0,
        arrival_s=min(8.0, max(2.0, buyers / 2_500)),
        user_prefix="buyer-",
        comes_back_s=min(8.0, max(2.0, buyers / 2_500)),
    )
    return Generator(plan, folder=folder, environment=environment, name="crowd")
