"""Two requests in RocketMQ's remoting protocol: which brokers are registered, and "register now".

The admin tool can do both, but starts a JVM for it (seconds); this takes a millisecond.
Frame: total length, header length (top byte 0 = JSON header), header, body; big-endian integers.
"""

from __future__ import annotations

import json
import re
import socket
import struct

UPDATE_BROKER_CONFIG = 25
GET_BROKER_CLUSTER_INFO = 106


def registered_brokers(*, host: str, port: int) -> dict[str, str]:
    """Ask the name server; return name → ``ip:port`` of every master, {} without an answer."""
    return _masters(_ask(host=host, port=port, code=GET_BROKER_CLUSTER_INFO))


def register_now(*, host: str, port: int) -> None:
    """Make the broker at ``host:port`` register with its name server at once.

    A broker registers once at its start and then every 10 s. The first time is lost when its
    connection to the name server is not open yet (a race inside 5.5.0), and a restarted name server
    knows nobody. Setting its permission (6 = read and write, the default) makes it register.
    """
    _ask(host=host, port=port, code=UPDATE_BROKER_CONFIG, body=b"brokerPermission=6\n")


def _ask(*, host: str, port: int, code: int, body: bytes = b"", timeout_s: float = 2.0) -> str:
    """Send one request and return the body of the answer, "" when nobody answers."""
    fields = {"code": code, "language": "PYTHON", "version": 453, "opaque": 1, "flag": 0}
    header = json.dumps(fields).encode()
    frame = struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(frame)
            (total,) = struct.unpack(">i", _read(connection, 4))
            answer = _read(connection, total)
    except OSError:
        return ""
    header_length = struct.unpack(">i", answer[:4])[0] & 0xFFFFFF
    return answer[4 + header_length :].decode("utf-8")


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionResetError("connection closed in the middle of an answer")
        data += chunk
    return data


def _masters(body: str) -> dict[str, str]:
    if not body:
        return {}
    # fastjson writes integer keys without quotes ({0:"127.0.0.1:10911"}), which is not JSON.
    content = json.loads(re.sub(r"([{,])(\d+):", r'\1"\2":', body))
    table = content.get("brokerAddrTable") or {}
    return {
        name: entry["brokerAddrs"]["0"]
        for name, entry in table.items()
        if "0" in entry["brokerAddrs"]
    }
