"""The scenarios by name: what each measures. No Django here, `bench.scenarios.run` has the rest."""

from typing import Final, NamedTuple


class Scenario(NamedTuple):
    """A scenario: what its rate counts, what that is compared with, and what happens."""

    unit: str
    calibration: str  # field of Calibration
    bar: str  # what the specification asks of two cores
    times: str  # what p50 to p99 are
    about: str


SCENARIOS: Final[dict[str, Scenario]] = {
    "accept": Scenario(
        "accepted/s",
        "echo_per_s",
        "7 500 always, 10 000 everysec; 5 000 at 50 connections",
        "from request to final answer",
        "reservations accepted and confirmed by the broker; consumers off, limits lifted",
    ),
    "sold-out": Scenario(
        "answers/s",
        "echo_per_s",
        "25 000",
        "from request to answer",
        "answers after the last unit is gone; one request in a hundred is a holder's",
    ),
    "drain": Scenario(
        "orders/s",
        "commits_per_s",
        "5 000",
        "from reservation to committed order",
        "a backlog becomes orders: the order group alone, two processes",
    ),
    "drain-full": Scenario(
        "orders/s",
        "commits_per_s",
        "recorded only",
        "from reservation to committed order",
        "a backlog becomes orders while all groups, sender and scanner run",
    ),
    "recovery": Scenario(
        "orders/s",
        "commits_per_s",
        "recorded only",
        "from reservation to committed order",
        "consumers stopped while 20 000 are accepted, then started: time until none waits",
    ),
    "steady": Scenario(
        "orders/s",
        "commits_per_s",
        "the rate asked for, 99.9 % ordered within 3 s",
        "from reservation to committed order",
        "buyers at an even rate for 2 minutes who pay, cancel or let their time run out",
    ),
    "hot-sku": Scenario(
        "orders/s",
        "commits_per_s",
        "recorded only: the ratio to 64 SKUs",
        "from reservation to committed order, one SKU",
        "the same crowd on one SKU and on 64, in turns",
    ),
    "memory": Scenario(
        "MB",
        "commits_per_s",
        "at most 900 MB",
        "from reservation to committed order",
        "memory of the nine Python processes during an hour (--minutes) of the steady mix",
    ),
    "growth": Scenario(
        "orders/s",
        "commits_per_s",
        "the same at any size of history",
        "from reservation to committed order",
        "the order group alone with 0, 100 000 and 1 000 000 old orders in the tables",
    ),
    "sale": Scenario(
        "orders/s",
        "commits_per_s",
        "4 500",
        "from request to final answer",
        "20 000 units, 22 000 buyers: from the first request to 99 % of the orders committed",
    ),
    "burst": Scenario(
        "accepted/s",
        "echo_per_s",
        "p99 at most 3 000 ms",
        "from reservation to committed order",
        "10 000 accepted at once; p50 to p99 are from reservation to committed order",
    ),
    "overload": Scenario(
        "accepted/s",
        "commits_per_s",
        "99.9 % ordered within 3 s, none expired, pool wait p95 at most 100 ms",
        "from reservation to committed order, governed",
        "three times more buyers than the consumers drain, for 20 s: without the governor, with it",
    ),
    "observability-cost": Scenario(
        "accepted/s",
        "echo_per_s",
        "at most 5 % of the CPU of a request",
        "not taken",
        "CPU for each accepted reservation with metrics, logs and traces, and without: seven pairs",
    ),
    "console": Scenario(
        "pages/s",
        "echo_per_s",
        "recorded only",
        "from request to page, without HTTP",
        "every page of the desk for dead messages with 100 000 of them",
    ),
}
