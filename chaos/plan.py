"""What one seed does: a workload and a schedule of faults, drawn from the seed alone."""

import random
from dataclasses import dataclass
from typing import Final

from chaos.catalogue import FAULTS, REBUILD_POINTS, Excuse

ARRIVAL_S: Final = 5.0
_AFTERWARDS: Final = ("pay", "pay", "pay_twice", "cancel", "pay_and_cancel", "nothing")
_DEATHS: Final = ("bug", "bug", "newer_schema", "newer_schema", "cut_off")
AT_REPLAY: Final = ("kill_at_replay", "kill_at_replay", "stop_at_replay", "raise_at_replay")
_AT_GOVERNOR: Final = (
    *("kill_at_governor", "governor_stopped", "governor_misled", "governor_misled"),
    *("governor_spoken_over", "governor_spoken_over"),
)
_OPERATORS: Final = ("top_up", "cut", "edit", "pause", "stop", "refund", "cancel")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuyerPlan:
    """One buyer. `sku` counts from 0; `second` is what he does besides his click."""

    user: str
    at_s: float
    sku: int
    quantity: int
    second: str  # "", double (another key, at once), same_key (again), conflict (key, other body)
    afterwards: str
    wait_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorStep:
    """What an operator does, and when."""

    at_s: float
    verb: str
    units: int
    sku: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadPlan:
    """A message that dies: how, of whom, and when. `bug` dies of the handler, not of its bytes."""

    how: str
    user: str
    at_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedFault:
    """A fault of the catalogue with everything that was drawn for it."""

    name: str
    target: str
    at_s: float
    for_s: float

    def __str__(self) -> str:
        target = f"({self.target})" if self.target else ""
        lasting = f" for {self.for_s:.1f} s" if self.for_s else ""
        return f"{self.at_s:.1f} s {self.name}{target}{lasting}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A whole seed. Times are seconds after the sale opened."""

    seed: int
    skus: int
    stock: int
    limit_per_user: int
    validity_s: int
    pay_window_s: int
    max_pending: int
    buyers: tuple[BuyerPlan, ...]
    operators: tuple[OperatorStep, ...]
    faults: tuple[PlannedFault, ...]
    dead: tuple[DeadPlan, ...]
    fixed_at_s: float  # when the handler's bug is mended

    @property
    def excuses(self) -> frozenset[Excuse]:
        """What the faults may honestly cost."""
        return frozenset(FAULTS[fault.name].excuse for fault in self.faults)

    @property
    def web_clock_off_ms(self) -> int:
        """How wrong the clock is that draws the ids of reservations."""
        offsets = [
            abs(int(fault.target.partition(":")[2]))
            for fault in self.faults
            if fault.name == "clock_skew" and fault.target.startswith("web:")
        ]
        return max(offsets, default=0) * 1_000

    @property
    def hits_replay(self) -> bool:
        """Whether a fault strikes the replay worker: then everything that can be is replayed."""
        return any(fault.name in AT_REPLAY for fault in self.faults)


def draw(seed: int, *, jvm: bool = True) -> Plan:
    """Draw the plan of a seed; the same seed gives the same plan.

    Args:
        seed: any number ≥ 0.
        jvm: False draws no fault of a Java process (the short set of the test suite).
    """
    rng = random.Random(seed)
    faults = _faults(rng, seed, jvm=jvm)
    desk = random.Random(f"desk {seed}")
    at_desk = _desk_faults(desk)
    names = {fault.name for fault in faults}
    excuses = frozenset(FAULTS[name].excuse for name in names)
    validity_s = 6 if Excuse.LOSS in excuses else 3 if Excuse.EXPIRY in excuses else 300
    skus = rng.choice((1, 1, 2))
    limit = rng.choice((1, 1, 2, 3))
    return Plan(
        seed=seed,
        skus=skus,
        stock=rng.randint(4, 40),
        limit_per_user=limit,
        validity_s=validity_s,
        pay_window_s=rng.choice((3, 900, 900)),
        max_pending=rng.choice((2_000, 2_000, 8)),
        buyers=tuple(
            _buyer(rng, f"s{seed}-{n}", skus=skus, limit=limit) for n in range(rng.randint(25, 70))
        ),
        operators=tuple(
            OperatorStep(
                at_s=round(rng.uniform(0.5, ARRIVAL_S), 2),
                verb=rng.choice(_OPERATORS),
                units=rng.randint(1, 8),
                sku=rng.randrange(skus),
            )
            for _ in range(rng.randint(0, 4))
        ),
        faults=tuple(sorted((*faults, *at_desk), key=lambda fault: fault.at_s)),
        dead=_dead(desk, seed, excuses=excuses, many=any(f.name in AT_REPLAY for f in at_desk)),
        fixed_at_s=round(desk.uniform(1.5, 4), 1),
    )


def _desk_faults(rng: random.Random) -> list[PlannedFault]:
    """One seed of three hits the replay worker, one of three the governor."""
    names = []
    if rng.random() < 1 / 3:
        names.append(rng.choice(AT_REPLAY))
    if rng.random() < 1 / 3:
        names.append(rng.choice(_AT_GOVERNOR))
    return [_fault(rng, name) for name in names]


def _dead(
    rng: random.Random, seed: int, *, excuses: frozenset[Excuse], many: bool
) -> tuple[DeadPlan, ...]:
    """In three seeds of five messages die; where Redis loses data, none whose owner it alone knows.

    Args:
        rng: of the desk.
        seed: names the buyers.
        excuses: what this seed's faults may cost.
        many: whether some must die.
    """
    count = rng.randint(1, 3) if many or rng.random() < 3 / 5 else 0
    ways = [way for way in _DEATHS if way != "cut_off" or not (many or Excuse.LOSS in excuses)]
    dead = []
    for n in range(count):
        how = rng.choice(ways)
        user = f"s{seed}-{n}@example.com" if how == "bug" else f"s{seed}-dead-{n}"
        dead.append(DeadPlan(how=how, user=user, at_s=round(rng.uniform(0, 0.8), 2)))
    return tuple(dead)


def _buyer(rng: random.Random, user: str, *, skus: int, limit: int) -> BuyerPlan:
    return BuyerPlan(
        user=user,
        at_s=round(rng.uniform(0, ARRIVAL_S), 2),
        sku=rng.randrange(skus),
        quantity=rng.randint(1, limit),
        second=rng.choice(("", "", "", "double", "same_key", "conflict")),
        afterwards=rng.choice(_AFTERWARDS),
        wait_s=round(rng.uniform(0, 1.5), 2),
    )


def _faults(rng: random.Random, seed: int, *, jvm: bool) -> tuple[PlannedFault, ...]:
    """One seed of five hits a JVM, one of seven makes Redis lose data, one of nine expires."""
    names = []
    if jvm and seed % 5 == 0:
        names.append(rng.choice([n for n, spec in FAULTS.items() if spec.jvm]))
    elif seed % 7 == 3:
        names.append(rng.choice(("redis_older_copy", "redis_older_copy", "redis_emptied")))
        if rng.random() < 0.4:
            names.append("kill_at_rebuild")
    elif seed % 9 == 4:
        names.append("consumers_late")
    usual = [name for name, spec in FAULTS.items() if spec.weight and not spec.jvm]
    wanted = rng.randint(1, 3) if not names else rng.randint(0, 1)
    names += rng.choices(usual, weights=[FAULTS[name].weight for name in usual], k=wanted)
    return tuple(sorted((_fault(rng, name) for name in names), key=lambda fault: fault.at_s))


def _fault(rng: random.Random, name: str) -> PlannedFault:
    spec = FAULTS[name]
    early = name in {"kill_at_rebuild", "consumers_late", "redis_older_copy", *AT_REPLAY}
    return PlannedFault(
        name=name,
        target=rng.choice(REBUILD_POINTS if name == "kill_at_rebuild" else spec.targets),
        at_s=0.5 if early else round(rng.uniform(0.3, ARRIVAL_S), 2),
        for_s=round(rng.uniform(*spec.for_s), 1),
    )
