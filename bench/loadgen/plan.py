"""What to do, and what came of it: the JSON in and out of the load generator."""

from enum import StrEnum

import msgspec


class Mode(StrEnum):
    """Two kinds of load."""

    CLOSED = "closed"  # every connection asks again as soon as it is answered
    CROWD = "crowd"  # buyers with habits, arriving by a clock of their own


class Plan(msgspec.Struct, kw_only=True):
    """One run. User ids are `user_prefix` + number, `first_user` onwards.

    `limit` ends a closed run after so many requests (0: only `seconds` ends it); without `cycle`
    every user asks once. Every `holder_every`th request comes from one of `holders` users, called
    `holder_prefix` + number.
    """

    host: str = "127.0.0.1"
    port: int
    path: str
    more_paths: list[str] = []  # users take turns on all paths
    mode: Mode = Mode.CLOSED
    method: str = "POST"
    body: str = '{"quantity":1}'
    connections: int = 50
    seconds: float = 10.0
    warm_up_s: float = 0.0
    limit: int = 0
    cycle: bool = False
    users: int = 0
    first_user: int = 0
    user_prefix: str = "buyer-"
    holders: int = 0
    holder_prefix: str = "holder-"
    holder_every: int = 0
    keys: bool = True
    retry: bool = False  # closed: who got 503, 429 or no answer asks again with the same key
    timeout_s: float = 10.0
    ids_file: str = ""
    # Crowd only.
    arrival_s: float = 8.0
    rush: float = 0.5  # share of the buyers who all come in the first fifth of that time
    clickers: float = 0.10
    key_reusers: float = 0.05
    gives_up_after_503: float = 0.2
    comes_back_s: float = 3.0
    seed: int = 1


class Result(msgspec.Struct, kw_only=True):
    """What one run saw. `codes` counts `status code` pairs, e.g. `409 SOLD_OUT`.

    The times are from a buyer's first try to his final answer: who is asked to come again waits.
    """

    requests: int
    seconds: float
    rate_per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    codes: dict[str, int]
    errors: dict[str, int]
    unanswered: int  # buyers who asked and had no final answer at the end
    accepted: int  # distinct reservation ids answered 202
    queued: int  # answers 202 that said QUEUED: the broker has confirmed
    pending: int
    holder_codes: dict[str, int]  # of `codes`, those that holders were answered
    users_served: int  # distinct users with an accepted reservation
    double_reservations: int  # users who got a second reservation while the first was alive (crowd)
    histogram: dict[int, int]  # of the latencies: bucket → count
