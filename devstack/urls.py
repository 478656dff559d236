"""The addresses that the application gets, as environment variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devstack.ports import HOST
from devstack.postgres import PostgresServer
from devstack.rocketmq import CLUSTER

if TYPE_CHECKING:
    from devstack.state import RunFolder, Settings


def own_urls(*, folder: RunFolder, settings: Settings) -> dict[str, str]:
    """Return the addresses of the embedded services; {} before the first start."""
    ports = settings.ports
    if not ports:
        return {}
    redis = f"redis://{HOST}:{ports['redis']}"
    postgres = PostgresServer(folder=folder, settings=settings)
    return {
        "DATABASE_URL": postgres.url(),
        "RUNTIME_DATABASE_URL": postgres.url(kind="runtime"),
        "AUDITOR_DATABASE_URL": postgres.url(kind="auditor"),
        "REDIS_URL": f"{redis}/0",
        "CACHE_URL": f"{redis}/1",
        "CELERY_BROKER_URL": f"{redis}/2",
        "ROCKETMQ_ENDPOINTS": f"{HOST}:{ports['proxy_grpc']}",
        "ROCKETMQ_NAMESRV": f"{HOST}:{ports['namesrv']}",
        "ROCKETMQ_ADMIN": str(folder.mqadmin),
        "ROCKETMQ_CLUSTER": CLUSTER,
        "ROCKETMQ_METRICS_URL": f"http://{HOST}:{ports['broker_metrics']}/metrics",
        "PAYMENT_PROVIDER_URL": f"http://{HOST}:{ports['provider']}",
    }


def merged(*, own: dict[str, str], external: dict[str, str]) -> dict[str, str]:
    """Return ``own`` with the external parts put over it, and nothing of ours beside those."""
    result = dict(own)
    if "REDIS_URL" in external:
        base = external["REDIS_URL"].split("?")[0].rstrip("/")
        server = base.rsplit("/", 1)[0] if base.count("/") > 2 else base
        result |= {"CACHE_URL": f"{server}/1", "CELERY_BROKER_URL": f"{server}/2"}
    if "DATABASE_URL" in external:  # its roles are somebody else's
        result = {key: url for key, url in result.items() if not key.endswith("_DATABASE_URL")}
    if "ROCKETMQ_ENDPOINTS" in external:
        result = {key: value for key, value in result.items() if not key.startswith("ROCKETMQ_")}
    return result | external
