"""The few admin requests of RocketMQ's remoting protocol that provisioning needs.

The admin tool `mqadmin` speaks the same protocol, but starts a JVM for seconds per call, exits 0
on failure and must be scraped. These requests take milliseconds and answer with codes.
Frame: total length, header length (top byte 0 = JSON header), header, body; all big-endian.
"""

import base64
import hashlib
import hmac
import itertools
import json
import re
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_OK: Final = 0
_TOPIC_NOT_EXIST: Final = 17
_GROUP_NOT_EXIST: Final = 26
_VERSION: Final = 477  # RocketMQ 5.x
_GET_CLUSTER: Final = 106
_GET_ALL_TOPICS: Final = 21
_GET_ALL_GROUPS: Final = 201
_GET_ROUTE: Final = 105
_GET_ALL_OFFSETS: Final = 43
_COMMIT_OFFSET: Final = 15
_UPDATE_TOPICS: Final = 18
_UPDATE_GROUPS: Final = 225
_DELETE_TOPIC_IN_BROKER: Final = 215
_DELETE_TOPIC_IN_NAMESRV: Final = 216
_DELETE_GROUP: Final = 207
_opaque = itertools.count(1)


class AdminError(Exception):
    """One line for a person: what was asked of whom, and what came back."""


@dataclass(frozen=True, kw_only=True)
class Admin:
    """The admin side of a cluster.

    Args:
        namesrv: `host:port` of a name server; several are separated by `;`, the first that answers
            is used.
        cluster: the cluster's name.
        access_key: for a broker with ACL, else empty.
        secret_key: its secret.
        timeout_s: for each request.
    """

    namesrv: str
    cluster: str
    access_key: str = ""
    secret_key: str = ""
    timeout_s: float = 5.0

    def masters(self) -> dict[str, str]:
        """Return broker name → address of every master of the cluster."""
        body = self._ask_namesrv(_GET_CLUSTER, {})
        names = (body.get("clusterAddrTable") or {}).get(self.cluster)
        if not names:
            known = ", ".join(sorted(body.get("clusterAddrTable") or {})) or "none"
            raise AdminError(
                f"no broker of cluster {self.cluster} is registered at {self.namesrv} "
                f"(clusters there: {known}): set ROCKETMQ_CLUSTER, or start the broker"
            )
        table = body["brokerAddrTable"]
        return {
            name: table[name]["brokerAddrs"]["0"]
            for name in sorted(names)
            if "0" in table.get(name, {}).get("brokerAddrs", {})
        }

    def topics(self, broker: str) -> dict[str, dict[str, Any]]:
        """Return every topic configuration of a broker by name: one request."""
        body = self._ask(broker, _GET_ALL_TOPICS, {})
        return dict(body.get("topicConfigTable") or {})

    def groups(self, broker: str) -> dict[str, dict[str, Any]]:
        """Return every group configuration of a broker by name: one request."""
        body = self._ask(broker, _GET_ALL_GROUPS, {})
        return dict(body.get("subscriptionGroupTable") or {})

    def update_topics(self, broker: str, configs: Sequence[Mapping[str, Any]]) -> None:
        """Create or change topics: one request."""
        self._ask(broker, _UPDATE_TOPICS, {}, {"topicConfigList": list(configs)})

    def update_groups(self, broker: str, configs: Sequence[Mapping[str, Any]]) -> None:
        """Create or change groups: one request."""
        self._ask(broker, _UPDATE_GROUPS, {}, {"groupConfigList": list(configs)})

    def offsets(self, broker: str) -> set[tuple[str, str]]:
        """Return every (topic, group) of which a broker has a consumer offset: one request."""
        table = self._ask(broker, _GET_ALL_OFFSETS, {}).get("offsetTable") or {}
        return {(topic, group) for topic, _, group in (key.partition("@") for key in table)}

    def commit_offset(self, broker: str, *, topic: str, group: str, queue: int, at: int) -> None:
        """Set where a group goes on in one queue."""
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue),
            "commitOffset": str(at),
        }
        self._ask(broker, _COMMIT_OFFSET, fields)

    def routed_brokers(self, topic: str) -> set[str]:
        """Return the names of the brokers to which the name server leads a topic's messages."""
        body = self._ask_namesrv(_GET_ROUTE, {"topic": topic}, missing=_TOPIC_NOT_EXIST)
        return {queue["brokerName"] for queue in body.get("queueDatas") or []}

    def delete_topic(self, broker: str, topic: str) -> None:
        """Delete a topic and what is stored in it; no error when it is not there."""
        self._ask(broker, _DELETE_TOPIC_IN_BROKER, {"topic": topic}, missing=_TOPIC_NOT_EXIST)

    def forget_topic(self, topic: str) -> None:
        """Delete a topic's route at every name server."""
        for address in self._namesrvs():
            self._ask(address, _DELETE_TOPIC_IN_NAMESRV, {"topic": topic}, missing=_TOPIC_NOT_EXIST)

    def delete_group(self, broker: str, group: str) -> None:
        """Delete a group with its offsets; no error when it is not there."""
        fields = {"groupName": group, "cleanOffset": "true"}
        self._ask(broker, _DELETE_GROUP, fields, missing=_GROUP_NOT_EXIST)

    def _namesrvs(self) -> list[str]:
        return [address for address in re.split("[;,]", self.namesrv) if address]

    def _ask_namesrv(
        self, code: int, fields: Mapping[str, str], *, missing: int | None = None
    ) -> dict[str, Any]:
        problem = AdminError("ROCKETMQ_NAMESRV is empty: set it to host:port of the name server")
        for address in self._namesrvs():
            try:
                return self._ask(address, code, fields, missing=missing)
            except AdminError as error:
                problem = error
        raise problem

    def _ask(
        self,
        address: str,
        code: int,
        fields: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        *,
        missing: int | None = None,
    ) -> dict[str, Any]:
        """Send one request; an answer with the code `missing` counts as an empty one."""
        data = b"" if body is None else json.dumps(body).encode()
        header = {
            "code": code,
            "language": "PYTHON",
            "version": _VERSION,
            "opaque": next(_opaque),
            "flag": 0,
            "extFields": self._signed(fields, data),
        }
        try:
            answer, content = _exchange(address, json.dumps(header).encode(), data, self.timeout_s)
        except (OSError, ValueError) as error:
            raise AdminError(f"{address} does not answer: {error}") from None
        if answer["code"] == missing:
            return {}
        if answer["code"] != _OK:
            remark = str(answer.get("remark", "")).split("\n")[0]
            raise AdminError(f"{address} refused request {code}: {answer['code']} {remark}")
        return _parse(content)

    def _signed(self, fields: Mapping[str, str], data: bytes) -> dict[str, str]:
        """Add access key and signature: HMAC-SHA1 over the values in the order of their keys."""
        if not self.access_key:
            return dict(fields)
        signed = {**fields, "AccessKey": self.access_key}
        text = "".join(signed[key] for key in sorted(signed)).encode() + data
        mac = hmac.new(self.secret_key.encode(), text, hashlib.sha1)
        return {**signed, "Signature": base64.b64encode(mac.digest()).decode()}


def _exchange(
    address: str, header: bytes, body: bytes, timeout_s: float
) -> tuple[dict[str, Any], bytes]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)))
        connection.sendall(header + body)
        (total,) = struct.unpack(">i", _read(connection, 4))
        frame = _read(connection, total)
    length = struct.unpack(">i", frame[:4])[0]
    if length >> 24:
        raise ValueError("the answer's header is not JSON")
    return json.loads(frame[4 : 4 + length]), frame[4 + length :]


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionResetError("closed the connection")
        data += chunk
    return bytes(data)


def _parse(content: bytes) -> dict[str, Any]:
    """Parse a body. Integer keys come without quotes ({0:"127.0.0.1:10911"}), which is no JSON."""
    if not content:
        return {}
    text = content.decode()
    try:
        return dict(json.loads(text))
    except ValueError:
        return dict(json.loads(re.sub(r"([{,])(\d+):", r'\1"\2":', text)))
