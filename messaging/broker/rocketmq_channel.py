"""Connections to the proxy: lazy import of the client package, channels, signatures, fork guard.

Of `rocketmq-python-client` we use the generated messages and stubs and `Signature`, nothing else.
Its Producer overwrites ids and retries; its consumers log and hash each message, and hold their
session on another connection than ours, which a load balancer may lead to another proxy.
Every part used is held by a contract test (`tests/contract/broker/`).
"""

import itertools
import logging
import os
import secrets
import socket
import sys
import types
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import grpc
import grpc.aio
from django.conf import settings
from grpc.experimental import ChannelOptions

_LOG_MODULE: Final = "rocketmq.v5.log.log_config"
_OPTIONS: Final = (
    # One attempt: a retry inside gRPC would make "definite failure" a lie.
    ("grpc.enable_retries", 0),
    # A restarted proxy is found again within a second; the default back-off grows to 120 s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A network that swallows packets: TCP gives up after 5 s without an acknowledgement, where the
    # kernel would try for 15 minutes. gRPC sets TCP_USER_TIMEOUT to the second value when the first
    # is given; that one is longer than what the proxy allows between pings (5 minutes).
    ("grpc.keepalive_time_ms", 360_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Each client has its own connection: session and calls of a receiver meet the same proxy.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # Reading a stream without a second thread: 60 instead of 100 µs of CPU per received message.
    (ChannelOptions.SingleThreadedUnaryStream, 1),
)
_client_numbers = itertools.count(1)
_opened_in: int | None = None  # pid in which gRPC was started


@dataclass(frozen=True, slots=True)
class Protocol:
    """The generated modules of the client package."""

    messages: Any  # service_pb2
    definitions: Any  # definition_pb2
    stub: Any  # MessagingServiceStub
    signature: Any  # Signature
    version: str


@lru_cache(maxsize=1)
def protocol() -> Protocol:
    """Import the client package, once, without letting it take over logging.

    Its `log_config` makes `~/logs`, runs `dictConfig` and closes our handlers; a stand-in is put
    in its place first.
    """
    if _LOG_MODULE not in sys.modules:
        stand_in = types.ModuleType(_LOG_MODULE)
        stand_in.logger = logging.getLogger("rocketmq-python-client")  # type: ignore[attr-defined]
        sys.modules[_LOG_MODULE] = stand_in
    from rocketmq.grpc_protocol import definition_pb2, service_pb2, service_pb2_grpc
    from rocketmq.v5.util import SDK_VERSION, Signature

    return Protocol(
        messages=service_pb2,
        definitions=definition_pb2,
        stub=service_pb2_grpc.MessagingServiceStub,
        signature=Signature,
        version=SDK_VERSION,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """Access key and secret in the shape that `Signature` reads; empty when there is no ACL."""

    ak: str = ""
    sk: str = ""

    def __repr__(self) -> str:
        return "Credentials(…)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Connection:
    """Where the proxy is and who we are. `namespace` and `credentials` are read by `Signature`."""

    endpoints: str
    tls: bool = False
    credentials: Credentials = Credentials()
    namespace: str = ""

    @classmethod
    def from_settings(cls) -> "Connection":
        """Read ROCKETMQ_ENDPOINTS, _TLS, _ACCESS_KEY and _SECRET_KEY."""
        return cls(
            endpoints=settings.ROCKETMQ_ENDPOINTS,
            tls=settings.ROCKETMQ_TLS,
            credentials=Credentials(
                ak=settings.ROCKETMQ_ACCESS_KEY, sk=settings.ROCKETMQ_SECRET_KEY
            ),
        )

    def metadata(self, client_id: str) -> list[tuple[str, str]]:
        """Return the signed headers of one call."""
        headers: list[tuple[str, str]] = protocol().signature.metadata(self, client_id)
        return headers

    def channel(self) -> grpc.Channel:
        """Open a channel for threads. Nothing is connected before the first call."""
        _guard_fork()
        if self.tls:
            return grpc.secure_channel(self._target, grpc.ssl_channel_credentials(), _OPTIONS)
        return grpc.insecure_channel(self._target, _OPTIONS)

    def async_channel(self) -> grpc.aio.Channel:
        """Open a channel for the running event loop."""
        _guard_fork()
        if self.tls:
            return grpc.aio.secure_channel(self._target, grpc.ssl_channel_credentials(), _OPTIONS)
        return grpc.aio.insecure_channel(self._target, _OPTIONS)

    @property
    def _target(self) -> str:
        """The name in gRPC's spelling for `host:port`, or for several `ip:port` joined by `;`."""
        addresses = self.endpoints.removeprefix("http://").replace(";", ",").strip(",")
        return f"ipv4:{addresses}" if "," in addresses else f"dns:///{addresses}"


def new_client_id() -> str:
    """Return an id that no other client has: host, pid, number, random."""
    return f"{socket.gethostname()}@{os.getpid()}@{next(_client_numbers)}@{secrets.token_hex(4)}"


def _guard_fork() -> None:
    """Refuse to work in a child of a process that had opened channels: its calls would hang."""
    global _opened_in
    pid = os.getpid()
    if _opened_in not in (None, pid):
        raise RuntimeError(
            f"process {_opened_in} opened a broker connection before it forked {pid}: "
            "gRPC hangs in such a child. Make broker clients after the fork"
        )
    _opened_in = pid
