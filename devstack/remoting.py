"""One question to the name server in RocketMQ's remoting protocol: which brokers are registered?

The admin tool answers it too, but starts a JVM for it (seconds); this takes a millisecond.
Frame: total length, header length (top byte 0 = JSON header), header, body; all integers are big-endian.
"""

from __future__ import annotations

import json
import re
import socket
import struct

GET_BROKER_CLUSTER_INFO = 106


def registered_brokers(*, host: str, port: int, timeout_s: float = 2.0) -> dict[str, str]:
    """Return broker name → ``ip:port`` of every master; {} while the name server does not answer."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(_request())
            (total,) = struct.unpack(">i", _read(connection, 4))
            frame = _read(connection, total)
    except OSError:
        return {}
    header_length = struct.unpack(">i", frame[:4])[0] & 0xFFFFFF
    return _masters(frame[4 + header_length :].decode("utf-8"))


def _request() -> bytes:
    header = json.dumps(
        {
            "code": GET_BROKER_CLUSTER_INFO,
            "language": "PYTHON",
            "version": 453,
            "opaque": 1,
            "flag": 0,
        }
    ).encode()
    return struct.pack(">ii", 4 + len(header), len(header)) + header


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionResetError("the name server closed the connection")
        data += chunk
    return data


def _masters(body: str) -> dict[str, str]:
    # fastjson writes integer keys without quotes ({0:"127.0.0.1:10911"}), which is not JSON.
    if not body:
        return {}
    content = json.loads(re.sub(r"([{,])(\d+):", r'\1"\2":', body))
    table = content.get("brokerAddrTable") or {}
    return {
        name: entry["brokerAddrs"]["0"]
        for name, entry in table.items()
        if "0" in entry["brokerAddrs"]
    }
