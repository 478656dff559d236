"""Token buckets and known keys, on a clock of their own."""

from seckill.admission.limits import EntryBucket, KnownKeys, UserBuckets


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_burst_then_rate() -> None:
    clock = Clock()
    buckets = UserBuckets(10.0, clock=clock)
    assert [buckets.take("a") for _ in range(11)] == [True] * 10 + [False]
    clock.now += 0.1
    assert buckets.take("a") is True
    assert buckets.take("a") is False
    assert buckets.take("b") is True


def test_asking_all_the_time_never_exceeds_the_rate() -> None:
    clock = Clock()
    buckets = UserBuckets(10.0, clock=clock)
    taken = 0
    for _ in range(10_000):  # 10 s, asked every ms
        taken += buckets.take("a")
        clock.now += 0.001
    assert 109 <= taken <= 110


def test_idle_users_are_forgotten_and_lose_nothing() -> None:
    clock = Clock()
    buckets = UserBuckets(10.0, clock=clock)
    for n in range(1_000):
        buckets.take(f"u{n}")
    clock.now += 1.1
    buckets.take("x")
    clock.now += 1.1
    buckets.take("x")
    assert len(buckets) <= 2
    assert [buckets.take("u1") for _ in range(11)] == [True] * 10 + [False]


def test_memory_is_bounded_at_any_rate_of_users() -> None:
    clock = Clock()
    buckets = UserBuckets(10.0, limit=100, clock=clock)
    for n in range(10_000):
        buckets.take(f"u{n}")
    assert len(buckets) <= 200


def test_slow_rate_lets_one_through() -> None:
    clock = Clock()
    buckets = UserBuckets(0.5, clock=clock)
    assert [buckets.take("a"), buckets.take("a")] == [True, False]
    clock.now += 1.9
    assert buckets.take("a") is False
    clock.now += 0.2
    assert buckets.take("a") is True


def test_no_rate_is_no_limit() -> None:
    assert all(UserBuckets(0).take("a") for _ in range(100))
    assert all(EntryBucket().take(0) for _ in range(100))


def test_entry_bucket_follows_a_changed_rate() -> None:
    clock = Clock()
    bucket = EntryBucket(clock=clock)

    def in_one_second(rate: float) -> int:
        taken = 0
        for _ in range(1_000):
            clock.now += 0.001
            taken += bucket.take(rate)
        return taken

    assert 99 <= in_one_second(100) <= 111
    assert 9 <= in_one_second(10) <= 12


def test_known_keys_are_per_user_and_bounded() -> None:
    keys = KnownKeys(limit=10)
    keys.add(1, "alice", "k")
    assert (1, "alice", "k") in keys
    assert (1, "bob", "k") not in keys
    assert (2, "alice", "k") not in keys
    for n in range(20):
        keys.add(1, "u", str(n))
    assert (1, "alice", "k") not in keys
    assert (1, "u", "19") in keys
