"""Which TCP ports the services listen on: chosen once, kept, and checked before a start."""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING

from devstack.errors import PortTaken, StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

HOST = "127.0.0.1"

# Place of each port in the block. The broker takes its listen port, the one two below ("VIP")
# and the one above (HA).
OFFSETS = {
    "postgres": 0,
    "redis": 1,
    "namesrv": 2,
    "proxy_grpc": 3,
    "proxy_remoting": 4,
    "proxy_metrics": 5,
    "broker_metrics": 6,
    "provider": 7,
    "broker_vip": 8,
    "broker": 10,
    "broker_ha": 11,
}
OWNED = {
    "postgres": ("postgres",),
    "redis": ("redis",),
    "namesrv": ("namesrv",),
    "broker": ("broker", "broker_vip", "broker_ha", "broker_metrics"),
    "proxy": ("proxy_grpc", "proxy_remoting", "proxy_metrics"),
    "provider": ("provider",),
}
BLOCK = 12
# Below the kernel's range for outgoing connections: a client's socket must not sit on our port.
FIRST, LAST = 15000, 31900


def is_free(port: int) -> bool:
    """Tell whether nobody listens on ``port``; TIME_WAIT does not count, our servers reuse it."""
    for host in (
        HOST,
        "",
    ):  # a listener on the wildcard address would shadow ours, and two of ours bind it
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                probe.listen(1)
            except OSError:
                return False
    return True


def answers(port: int, *, host: str = HOST, timeout_s: float = 0.5) -> bool:
    """Tell whether somebody accepts connections on ``host:port``."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s):
            return True
    except OSError:
        return False


def completed(known: Mapping[str, int]) -> dict[str, int]:
    """Return ``known`` with the ports of services that its stack did not have yet; {} stays {}."""
    return explicit(known["postgres"] - OFFSETS["postgres"]) | dict(known) if known else {}


def _candidate_bases(seed: str) -> Iterator[int]:
    """Yield block starts in an order that depends on the run folder: neighbours seldom meet."""
    starts = list(range(FIRST, LAST - BLOCK, 20))
    random.Random(seed).shuffle(starts)  # noqa: S311 (spread, not secrecy)
    yield from starts


def explicit(base: int) -> dict[str, int]:
    """Return the ports of the block at ``base``; raises StackError when it is out of range."""
    if not 1024 <= base <= 65535 - BLOCK:
        raise StackError(f"SECKILL_PORT_BASE={base}: give a number from 1024 to {65535 - BLOCK}")
    return {name: base + offset for name, offset in OFFSETS.items()}


def choose(*, seed: str, free: Callable[[int], bool] = is_free) -> dict[str, int]:
    """Return a whole free block; raises StackError when there is none."""
    for base in _candidate_bases(seed):
        ports = explicit(base)
        if all(free(port) for port in ports.values()):
            return ports
    raise StackError(
        f"no {BLOCK} free ports in a row between {FIRST} and {LAST}: stop some servers"
        " or set SECKILL_PORT_BASE"
    )


def settle(
    *,
    known: Mapping[str, int] | None,
    base: int | None,
    running: frozenset[str],
    seed: str,
    free: Callable[[int], bool] = is_free,
) -> tuple[dict[str, int], list[str]]:
    """Decide the ports of a start.

    Args:
        known: the ports of the last start, None at the first.
        base: start of an explicitly given block, None when we may choose.
        running: services of ours that are up and keep their ports.
        seed: makes the choice of this run folder.
        free: tells whether nobody listens on a port.

    Returns:
        All ports, and the names of those known ports that somebody else took meanwhile.

    Raises:
        PortTaken: an explicitly given port is in use.
    """
    ports = explicit(base) if base is not None else dict(known or {})
    if not ports:
        return choose(seed=seed, free=free), []
    kept = {name for service in running for name in OWNED[service]}
    if base is not None and known and any(known[name] != ports[name] for name in kept):
        raise StackError(
            "SECKILL_PORT_BASE differs from the ports of the running stack: bin/stack down first"
        )
    taken = [name for name in OFFSETS if name not in kept and not free(ports[name])]
    if not taken:
        return ports, []
    if base is not None:
        name = taken[0]
        raise PortTaken(
            f"port {ports[name]} ({name}) is taken: stop its owner or change"
            f" SECKILL_PORT_BASE={base}"
        )
    return _replace_taken(ports=ports, taken=taken, seed=seed, free=free), taken


def _replace_taken(
    *, ports: dict[str, int], taken: list[str], seed: str, free: Callable[[int], bool]
) -> dict[str, int]:
    """Give new ports to the services that lost one; a broker's four move together."""
    fresh = choose(seed=seed + "again", free=lambda port: free(port) and port not in ports.values())
    moved = {service for service, names in OWNED.items() if any(name in taken for name in names)}
    return {
        name: fresh[name] if any(name in OWNED[service] for service in moved) else ports[name]
        for name in OFFSETS
    }
