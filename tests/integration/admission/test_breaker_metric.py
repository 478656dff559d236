"""Whoever is on call sees that admission is closed: runbook SendingBlocked."""

from prometheus_client import REGISTRY

from messaging.broker.base import FailureClass
from tests.fixtures.sales import Sale
from tests.fixtures.web import ScriptedProducer, StartWeb, eventually, failed


def shown() -> float | None:
    return REGISTRY.get_sample_value("seckill_admission_breaker_open")


async def test_a_configuration_failure_shows_until_the_broker_stores_again(
    start_web: StartWeb, sale: Sale
) -> None:
    producer = ScriptedProducer(outcomes=[failed(FailureClass.CONFIGURATION)])
    web = await start_web(producer=producer)
    assert (await web.buy(sale, "alice")).code == "SEND_FAILED"
    await eventually(lambda: shown() == 1)

    async def open_again() -> bool:
        return (await web.buy(sale, "bob")).status == 202

    await eventually(open_again, timeout_s=6, every_s=0.2)
    await eventually(lambda: shown() == 0)
