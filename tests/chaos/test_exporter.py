"""The page of metrics that the fault search spoils: passed on, and nonsense while it lasts."""

from collections.abc import Iterator
from typing import Final

import pytest
import urllib3

from chaos.exporter import Exporter
from messaging.broker_metrics import BrokerBacklog, ExporterAway, read_backlogs
from messaging.topology import CG_ORDER_CREATE, physical_group
from tests.fixtures.exporter import Serve

_BACKLOG: Final = BrokerBacklog(lag=7, ready=0, in_flight=0, oldest_s=0.0)


@pytest.fixture
def exporter(serve: Serve) -> Iterator[Exporter]:
    """One in front of a page that tells of the order group."""
    page = (
        "# TYPE rocketmq_consumer_lag_messages gauge\n"
        f'rocketmq_consumer_lag_messages{{consumer_group="{physical_group(CG_ORDER_CREATE)}"}} 7\n'
    )
    made = Exporter(serve(200, page))
    yield made
    made.close()


def test_it_passes_the_page_on(exporter: Exporter) -> None:
    assert read_backlogs(exporter.url) == {CG_ORDER_CREATE: _BACKLOG}
    assert exporter.spoilt == 0


@pytest.mark.parametrize("mode", ["nothing", "nan", "huge"])
def test_nonsense_is_an_exporter_that_is_away_until_it_heals(exporter: Exporter, mode: str) -> None:
    exporter.spoil(mode)
    with pytest.raises(ExporterAway):
        read_backlogs(exporter.url)
    assert exporter.spoilt == 1

    exporter.heal()
    assert read_backlogs(exporter.url) == {CG_ORDER_CREATE: _BACKLOG}


def test_garbage_tells_nothing(exporter: Exporter) -> None:
    exporter.spoil("garbage")
    assert read_backlogs(exporter.url) == {}
    assert exporter.spoilt == 1


def test_whoever_got_no_answer_is_let_go(exporter: Exporter) -> None:
    exporter.spoil("nothing")
    with pytest.raises(urllib3.exceptions.HTTPError):
        urllib3.PoolManager(retries=False, timeout=0.2).request("GET", exporter.url)
