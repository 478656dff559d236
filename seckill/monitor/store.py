"""The monitor's keys in Redis (no I/O; `inventory.gate` runs the calls).

A snapshot has a short time to live, so a sampler that died shows as silence and not as a healthy
sale that stands still. Points are a list that grows by one a second and is cut: a page that opens
draws the last minutes at once, and the append-only file gets a few hundred bytes a second.
"""

from dataclasses import dataclass
from typing import Any, Final

from inventory.call import Call

SNAPSHOT: Final = "seckill:{monitor}:snapshot"
POINTS: Final = "seckill:{monitor}:points"
LEASE: Final = "seckill:{monitor}:sampler"

SNAPSHOT_TTL_MS: Final = 10_000
LEASE_TTL_MS: Final = 3_000
POINTS_KEPT: Final = 300
_POINTS_TTL_S: Final = 3_600


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What stands in Redis: the snapshot's JSON, None when nobody samples; Redis TIME, epoch ms."""

    snapshot: str | None
    now_ms: int


def take_lease(*, name: str) -> Call[tuple[bool, int]]:
    """Become or stay the one sampler; answers whether `name` is it, and Redis TIME in epoch ms."""
    return Call(
        commands=(
            ("SET", LEASE, name, "NX", "PX", LEASE_TTL_MS),
            ("GET", LEASE),
            ("TIME",),
        ),
        parse=lambda raw: (raw[1] == name, _now_ms(raw[2])),
    )


def publish(*, snapshot: bytes, point: bytes) -> Call[None]:
    """Publish what was seen, and hold the lease for another while."""
    return Call(
        commands=(
            ("SET", SNAPSHOT, snapshot.decode(), "PX", SNAPSHOT_TTL_MS),
            ("RPUSH", POINTS, point.decode()),
            ("LTRIM", POINTS, -POINTS_KEPT, -1),
            ("EXPIRE", POINTS, _POINTS_TTL_S),
            ("PEXPIRE", LEASE, LEASE_TTL_MS),
        ),
        parse=lambda _: None,
    )


def give_up() -> Call[None]:
    """Let another sample at once; only for whoever holds the lease."""
    return Call(commands=(("DEL", LEASE),), parse=lambda _: None)


def read() -> Call[Published]:
    """Read the newest snapshot."""
    return Call(
        commands=(("GET", SNAPSHOT), ("TIME",)),
        parse=lambda raw: Published(snapshot=raw[0], now_ms=_now_ms(raw[1])),
    )


def read_points() -> Call[list[str]]:
    """Read the points of the last minutes, the oldest first."""
    return Call(commands=(("LRANGE", POINTS, 0, -1),), parse=lambda raw: list(raw[0]))


def _now_ms(time: Any) -> int:
    return int(time[0]) * 1000 + int(time[1]) // 1000
