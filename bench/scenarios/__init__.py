"""The scenarios by name: what each measures. No Django here, `bench.scenarios.run` has the rest."""

from typing import Final, NamedTuple


class Scenario(NamedTuple):
    """A scenario: what its rate counts, what that is compared with, and what happens."""

    unit: str
    calibration: str  # field of Calibration
    about: str


SCENARIOS: Final[dict[str, Scenario]] = {
    "accept": Scenario(
        "accepted/s",
        "echo_per_s",
        "reservations accepted and confirmed by the broker; consumers off, limits lifted",
    ),
    "sold-out": Scenario(
        "answers/s",
        "echo_per_s",
        "answers after the last unit is gone; one request in a hundred is a holder's",
    ),
    "drain": Scenario(
        "orders/s",
        "commits_per_s",
        "a backlog becomes orders: the order group alone, two processes",
    ),
    "drain-full": Scenario(
        "orders/s",
        "commits_per_s",
        "a backlog becomes orders while all groups, sender and scanner run",
    ),
    "sale": Scenario(
        "orders/s",
        "commits_per_s",
        "20 000 units, 22 000 buyers: from the first request to 99 % of the orders committed",
    ),
    "burst": Scenario(
        "accepted/s",
        "echo_per_s",
        "10 000 accepted at once; p50 to p99 are from reservation to committed order",
    ),
}
