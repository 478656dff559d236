"""Problems, breaker, catalogue, paths."""

import asyncio
from collections.abc import Awaitable, Callable

import orjson
import pytest

from seckill.admission.app import hot_target
from seckill.admission.breaker import Breaker
from seckill.admission.catalogue import Catalogue, CatalogueEntry, CatalogueUnread, Key
from seckill.admission.problems import PROBLEMS, build, ready
from seckill.api.events import stream_target

OPEN = CatalogueEntry(opened=True, over=False)


@pytest.mark.parametrize("code", sorted(PROBLEMS))
def test_every_problem_is_rfc_9457_with_its_code(code: str) -> None:
    answer = ready(code)
    headers = dict(answer.headers)
    document = orjson.loads(answer.body)
    assert headers[b"content-type"] == b"application/problem+json"
    assert int(headers[b"content-length"]) == len(answer.body)
    assert document["type"] == f"urn:seckill:problem:{code}"
    assert document["code"] == code
    assert document["status"] == answer.status == PROBLEMS[code].status
    assert (b"retry-after" in headers) is (answer.status in (429, 503))


def test_problem_with_members_of_its_own() -> None:
    assert orjson.loads(build("RESERVATION_ENDED", reason="USER").body)["reason"] == "USER"


def test_breaker_lets_one_probe_through_after_each_pause() -> None:
    now = [0.0]
    breaker = Breaker(pause_s=2.0, clock=lambda: now[0])
    assert breaker.allow()
    breaker.trip()
    assert not breaker.allow()
    now[0] = 2.0
    assert [breaker.allow(), breaker.allow()] == [True, False]
    breaker.trip()
    now[0] = 3.9
    assert not breaker.allow()
    now[0] = 4.0
    assert breaker.allow()
    breaker.reset()
    assert [breaker.allow(), breaker.allow(), breaker.is_open] == [True, True, False]


async def test_catalogue_reads_once_for_a_flood_of_unknown_ids() -> None:
    now, reads = [0.0], []

    async def load() -> dict[Key, CatalogueEntry]:
        reads.append(now[0])
        await asyncio.sleep(0)
        return {(1, 1): OPEN}

    catalogue = Catalogue(load, clock=lambda: now[0], sleep=_passing(now))
    found = await asyncio.gather(*(catalogue.find((n, 1)) for n in range(500)))
    assert [entry is not None for entry in found].count(True) == 1
    assert len(reads) == 1
    await asyncio.gather(*(catalogue.find((1000 + n, 1)) for n in range(500)))
    assert reads == [0.0, 1.0]


async def test_catalogue_lets_the_first_buyer_of_a_new_sale_wait_for_the_next_read() -> None:
    now, sales = [0.0], {(1, 1): OPEN}

    async def load() -> dict[Key, CatalogueEntry]:
        return dict(sales)

    catalogue = Catalogue(load, clock=lambda: now[0], sleep=_passing(now))
    await catalogue.refresh()
    now[0] = 0.3
    sales[2, 1] = OPEN
    assert await catalogue.find((1, 1)) == OPEN
    assert now == [0.3]
    assert await catalogue.find((2, 1)) == OPEN
    assert now == [1.0]


def _passing(now: list[float]) -> Callable[[float], Awaitable[None]]:
    async def sleep(seconds: float) -> None:
        wake = now[0] + seconds
        await asyncio.sleep(0)
        now[0] = max(now[0], wake)

    return sleep


async def test_catalogue_keeps_what_it_knows_when_a_read_fails() -> None:
    fail = [False]

    async def load() -> dict[Key, CatalogueEntry]:
        if fail[0]:
            raise OSError("no database")
        return {(1, 1): OPEN}

    catalogue = Catalogue(load, pause_s=0.0)
    await catalogue.refresh()
    fail[0] = True
    with pytest.raises(OSError, match="no database"):
        await catalogue.find((2, 2))
    assert catalogue.known((1, 1))


async def test_catalogue_does_not_read_again_at_once_after_a_read_that_failed() -> None:
    now, reads = [0.0], []

    async def load() -> dict[Key, CatalogueEntry]:
        reads.append(now[0])
        now[0] += 3.0  # the time that a connect to nowhere takes
        raise OSError("no database")

    catalogue = Catalogue(load, clock=lambda: now[0])
    with pytest.raises(OSError, match="no database"):
        await catalogue.find((1, 1))
    for _ in range(64):
        with pytest.raises(CatalogueUnread):
            await catalogue.find((1, 1))
    assert reads == [0.0]

    now[0] += 1.0
    with pytest.raises(OSError, match="no database"):
        await catalogue.find((1, 1))
    assert reads == [0.0, 4.0]


async def test_catalogue_answers_again_after_a_good_read() -> None:
    fail = [True]

    async def load() -> dict[Key, CatalogueEntry]:
        if fail[0]:
            raise OSError("no database")
        return {(1, 1): OPEN}

    catalogue = Catalogue(load)
    with pytest.raises(OSError, match="no database"):
        await catalogue.find((1, 1))
    fail[0] = False
    await catalogue.refresh()
    assert await catalogue.find((1, 1)) == OPEN


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1/activities/1/skus/2/reservations", (1, 2)),
        ("/api/v1/activities/x/skus/-2/reservations", (0, 0)),
        ("/api/v1/activities/1/skus/2/reservations/", None),
        ("/api/v1/activities/1/skus/2/reservation", None),
        ("/api/v2/activities/1/skus/2/reservations", None),
        ("/", None),
        ("", None),
    ],
)
def test_hot_target(path: str, target: tuple[int, int] | None) -> None:
    assert hot_target(path) == target


def test_stream_target() -> None:
    rsv = "rsv_01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert stream_target(f"/api/v1/activities/1/reservations/{rsv}/events") == (1, rsv)
    assert stream_target("/api/v1/activities/1/reservations/x/events") is None
    assert stream_target(f"/api/v1/activities/0/reservations/{rsv}/events") is None
