"""Services that the user runs elsewhere: named in the environment and used as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from devstack.errors import ExternalUnreachable
from devstack.ports import answers

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTS = {
    "DATABASE_URL": ("postgres",),
    "REDIS_URL": ("redis",),
    "ROCKETMQ_ENDPOINTS": ("namesrv", "broker", "proxy"),
    "PAYMENT_PROVIDER_URL": ("provider",),
}
# What else is passed through when the part is external.
COMPANIONS = {
    "DATABASE_URL": (),
    "REDIS_URL": ("CACHE_URL", "CELERY_BROKER_URL"),
    "ROCKETMQ_ENDPOINTS": (
        "ROCKETMQ_NAMESRV",
        "ROCKETMQ_ADMIN",
        "ROCKETMQ_CLUSTER",
        "ROCKETMQ_METRICS_URL",
    ),
    "PAYMENT_PROVIDER_URL": ("PAYMENT_PROVIDER_KEY", "SECKILL_WEBHOOK_SECRET"),
}
DEFAULT_PORTS = {
    "DATABASE_URL": 5432,
    "REDIS_URL": 6379,
    "ROCKETMQ_ENDPOINTS": 8081,
    "PAYMENT_PROVIDER_URL": 443,
}
REACH_TIMEOUT_S = 3.0


@dataclass(frozen=True, kw_only=True)
class External:
    """The external parts of one stack."""

    urls: dict[str, str]

    @property
    def services(self) -> frozenset[str]:
        """The services that we must not start."""
        return frozenset(name for key in PARTS if key in self.urls for name in PARTS[key])

    def check(self) -> None:
        """Raise ExternalUnreachable for the first part that does not accept connections."""
        for key in PARTS:
            if key in self.urls:
                _reach(key, self.urls[key])


NONE = External(urls={})


def from_environment(*, environ: Mapping[str, str], own: Mapping[str, str]) -> External:
    """Return the parts that the user named.

    Args:
        environ: the environment of the command.
        own: the addresses of embedded stacks: a shell that ran ``eval "$(bin/stack env)"``
            has them in its environment, and they are not external.
    """
    urls = {}
    for key in PARTS:
        value = environ.get(key, "")
        if value and value != own.get(key):
            urls[key] = value
            urls |= {name: environ[name] for name in COMPANIONS[key] if environ.get(name)}
    return External(urls=urls)


def _reach(key: str, value: str) -> None:
    """Connect to every host of one address."""
    advice = f"start that server, correct {key}, or unset it to get the embedded one"
    for address in value.split(";") if key == "ROCKETMQ_ENDPOINTS" else [value]:
        try:
            parts = urlsplit(address if "//" in address else f"//{address}")
            host, port = parts.hostname or "", parts.port or DEFAULT_PORTS[key]
        except ValueError:
            raise ExternalUnreachable(f"{key} is not an address: {advice}") from None
        if not host or not answers(port, host=host, timeout_s=REACH_TIMEOUT_S):
            raise ExternalUnreachable(f"{key}: nothing answers at {host or '?'}:{port}: {advice}")
