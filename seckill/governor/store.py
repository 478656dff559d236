"""The governor's keys in Redis (no I/O; `inventory.gate` runs the calls).

The lock is a name with a time to live, and the decision too: a governor that dies is followed
within seconds, and its last word ends by itself. Two governors for a moment, around a lost lease,
publish decisions of the same rules from the same numbers: harmless, so no script guards it.
"""

from dataclasses import dataclass
from typing import Any, Final

from inventory.call import Call

DECISION: Final = "seckill:{governor}:decision"
LEADER: Final = "seckill:{governor}:leader"
WEB: Final = "seckill:{governor}:web"
PRESENT_MS: Final = 3_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What stands in Redis: the decision's text, live web processes, Redis TIME in epoch ms."""

    decision: str | None
    web_processes: int
    now_ms: int


def read(*, web_process: str = "") -> Call[Published]:
    """Read the decision and how many web processes live.

    Args:
        web_process: name of the calling web process, which counts itself; empty for all others.
    """
    commands: list[tuple[str | int, ...]] = [("GET", DECISION), ("ZCARD", WEB), ("TIME",)]
    if web_process:
        commands.append(("ZSCORE", WEB, web_process))

    def parse(raw: Any) -> Published:
        uncounted = bool(web_process) and raw[3] is None
        return Published(
            decision=raw[0],
            web_processes=int(raw[1]) + uncounted,
            now_ms=int(raw[2][0]) * 1000 + int(raw[2][1]) // 1000,
        )

    return Call(commands=tuple(commands), parse=parse)


def be_present(*, web_process: str, now_ms: int) -> Call[None]:
    """Say that a web process lives, and forget those that have not said so for 3 s."""
    return Call(
        commands=(
            ("ZADD", WEB, now_ms, web_process),
            ("ZREMRANGEBYSCORE", WEB, "-inf", now_ms - PRESENT_MS),
            ("PEXPIRE", WEB, 10 * PRESENT_MS),
        ),
        parse=lambda _: None,
    )


def leave(*, web_process: str) -> Call[None]:
    """Say that a web process ends: the others get its share."""
    return Call(commands=(("ZREM", WEB, web_process),), parse=lambda _: None)


def publish(*, decision: bytes, ttl_ms: int) -> Call[None]:
    """Publish a decision for so long."""
    return Call(
        commands=(("SET", DECISION, decision.decode(), "PX", ttl_ms),), parse=lambda _: None
    )


def leader() -> Call[str]:
    """Read who governs; empty when nobody does."""
    return Call(commands=(("GET", LEADER),), parse=lambda raw: raw[0] or "")


def take_lead(*, name: str, ttl_ms: int) -> Call[bool]:
    """Become the governor if nobody is."""
    return Call(
        commands=(("SET", LEADER, name, "NX", "PX", ttl_ms),), parse=lambda raw: bool(raw[0])
    )


def keep_lead(*, name: str, ttl_ms: int) -> Call[bool]:
    """Stay the governor for another while."""
    return Call(
        commands=(("SET", LEADER, name, "XX", "PX", ttl_ms),), parse=lambda raw: bool(raw[0])
    )


def give_up() -> Call[None]:
    """Let another govern at once; the decision stays until its time is over."""
    return Call(commands=(("DEL", LEADER),), parse=lambda _: None)


def forget() -> Call[None]:
    """Drop decision, lead and presence (tests, `stack reset`)."""
    return Call(commands=(("DEL", DECISION, LEADER, WEB),), parse=lambda _: None)
