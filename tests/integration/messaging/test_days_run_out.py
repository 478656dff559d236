"""When nobody makes new days any more, readiness says so before the last one is used up."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Self

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client

from messaging import partitions
from messaging.tasks import keep_partitions
from seckill.dependencies import PARTITION_DAYS_RED

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Move the clock of the partitions; the days made meanwhile are dropped again."""
    before = {table: set(partitions.days(table)) for table in partitions.TABLES}

    def move(days: int) -> None:
        class Moved(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Self:
                there = datetime.now(tz) + timedelta(days=days)
                return cls.fromtimestamp(there.timestamp(), tz)

        monkeypatch.setattr(partitions, "datetime", Moved)

    yield move
    monkeypatch.undo()
    with connection.cursor() as cursor:
        for table, known in before.items():
            for day in set(partitions.days(table)) - known:
                cursor.execute(f"DROP TABLE {partitions.partition_name(table, day)}")


def said() -> str:
    return str(Client().get("/readyz").json()["checks"]["partitions"])


def test_readiness_is_red_before_the_days_run_out_and_the_schedule_makes_it_green(
    clock: Any,
) -> None:
    last = min(max(partitions.days(table)) for table in partitions.TABLES)
    left = (last - datetime.now(tz=UTC).date()).days
    assert left >= settings.SECKILL_PARTITION_DAYS_AHEAD - 1
    clock(left - PARTITION_DAYS_RED)
    assert said() == "ok"

    clock(left - PARTITION_DAYS_RED + 1)

    assert f"partitions for {PARTITION_DAYS_RED - 1} days only" in said()
    assert Client().get("/readyz").status_code == 503
    assert keep_partitions() == settings.SECKILL_PARTITION_DAYS_AHEAD
    assert said() == "ok"
