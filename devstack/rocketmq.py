"""RocketMQ 5.5.0: name server, broker (messages on disk before confirmed) and CLUSTER proxy.

Three listeners cannot be told an address and take the wildcard one: the proxy's gRPC and remoting
ports and the broker's HA port.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from devstack import java, processes, remoting
from devstack.errors import StackError
from devstack.ports import HOST, answers
from devstack.service import Service

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from devstack.state import RunFolder, Settings

CLUSTER = "seckill"
BROKER = "broker-a"
MAX_MESSAGE_BYTES = 262144


class RocketMQProgram(Service):
    """What the three programs share: a Java process with a folder of its own."""

    main: str
    memory: tuple[str, ...]
    flags: tuple[str, ...] = ()

    @property
    def home(self) -> Path:
        """Folder of its store, configuration and logs."""
        return self.folder.path / "rocketmq" / self.name

    @property
    def namesrv_address(self) -> str:
        """Where the name server listens."""
        return f"{HOST}:{self.settings.ports['namesrv']}"

    def working_directory(self) -> Path:
        """Return the folder it runs in."""
        return self.home

    def argv(self) -> Sequence[str]:
        """Return the command line."""
        return java.command(
            main=self.main,
            home=self.home,
            logback=f"rmq.{self.name}.logback.xml",
            memory=self.memory,
            flags=self.flags,
            arguments=self.arguments(),
        )

    def arguments(self) -> Sequence[str]:
        """Return the arguments of the program."""
        raise NotImplementedError

    def write_properties(self, file: str, properties: Mapping[str, object]) -> None:
        """Write a Java properties file into the home; RocketMQ silently ignores a misspelt key."""
        self.home.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={value}" for key, value in properties.items()]
        (self.home / file).write_text("\n".join(lines) + "\n", encoding="utf-8")


# On two cores the optimising compiler takes most of one for the first minutes, just when the first
# sale runs.
QUICK_COMPILER = ("-XX:TieredStopAtLevel=1",)


class NameServer(RocketMQProgram):
    """Knows which broker serves which topic."""

    name = "namesrv"
    title = "RocketMQ name server"
    main = "org.apache.rocketmq.namesrv.NamesrvStartup"
    memory = ("-Xms64m", "-Xmx128m", "-XX:MaxDirectMemorySize=64m")
    flags = QUICK_COMPILER
    stop_grace_s = 1  # it keeps nothing on disk that matters and its own shutdown takes 3 s

    def prepare(self) -> None:
        """Write its configuration."""
        self.write_properties("namesrv.conf", {"listenPort": self.port, "bindAddress": HOST})

    def arguments(self) -> Sequence[str]:
        """Return the arguments of the program."""
        return ["-c", str(self.home / "namesrv.conf")]

    def is_ready(self) -> bool:
        """Tell whether it listens."""
        return answers(self.port)

    def settle(self) -> None:
        """Introduce a broker that is already running: a restarted name server knows nobody."""
        if answers(self.settings.ports["broker"]):
            remoting.register_now(host=HOST, port=self.settings.ports["broker"])


class Broker(RocketMQProgram):
    """Stores the messages."""

    name = "broker"
    title = "RocketMQ broker"
    main = "org.apache.rocketmq.broker.BrokerStartup"
    memory = ("-Xms256m", "-Xmx640m", "-XX:MaxDirectMemorySize=512m")
    flags = QUICK_COMPILER

    def prepare(self) -> None:
        """Write broker.conf."""
        store = self.home / "store"
        ports = self.settings.ports
        self.write_properties(
            "broker.conf",
            {
                "brokerClusterName": CLUSTER,
                "brokerName": BROKER,
                "brokerId": 0,
                "brokerIP1": HOST,
                "brokerIP2": HOST,
                "bindAddress": HOST,
                "listenPort": self.port,
                "haListenPort": ports["broker_ha"],
                "namesrvAddr": self.namesrv_address,
                # the shortest allowed: a restarted name server knows nothing until then
                "registerNameServerPeriod": 10000,
                "storePathRootDir": store,
                "storePathCommitLog": store / "commitlog",
                "flushDiskType": "SYNC_FLUSH",
                # A byte written through the memory map makes the kernel write the whole page around
                # it, up to 2 MB on file systems with large folios: 6 GB a minute for 80 MB.
                "writeWithoutMmap": "true",
                "mappedFileSizeCommitLog": 67108864,
                "mappedFileSizeConsumeQueue": 600000,
                "mappedFileSizeTimerLog": 10485760,
                "maxHashSlotNum": 20000,
                "maxIndexNum": 80000,
                "maxMessageSize": MAX_MESSAGE_BYTES,
                "transientStorePoolEnable": "false",
                "fileReservedTime": 72,
                # a fuller disk than 75 % would delete messages before their 72 hours
                "diskMaxUsedSpaceRatio": 90,
                "autoCreateTopicEnable": "false",
                "autoCreateSubscriptionGroup": "false",
                # receiving with an invisible time (POP) and delayed messages need it
                "timerWheelEnable": "true",
                # Receipts that are acked in time are matched in memory instead of written, flushed,
                # and read again: a fifth more orders. A killed broker delivers them once more.
                "enablePopBufferMerge": "true",
                # each flush compares its 38 MB byte by byte, 14 % of a core at the default of 1 s;
                # what a crash loses of the wheel is read again from the log
                "timerFlushIntervalMs": 10000,
                # 5.5.0 spins on one core until this interval (10 s) has passed for the first time
                "transactionMetricFlushInterval": 1000,
                "slaveReadEnable": "false",
                # a few threads: they wait for one flush together, and there are two cores
                "sendMessageThreadPoolNums": 8,
                "metricsExporterType": "PROM",
                "metricsPromExporterHost": HOST,
                "metricsPromExporterPort": ports["broker_metrics"],
            },
        )

    def arguments(self) -> Sequence[str]:
        """Return the arguments of the program."""
        return ["-c", str(self.home / "broker.conf")]

    def is_ready(self) -> bool:
        """Tell whether it listens and the name server knows it.

        The name server keeps a killed broker for two minutes, so its word alone is not enough; and
        the broker opens its port before it registers, while a proxy that starts in between dies.
        """
        if not (answers(self.port) and self.said("boot success")):
            return False
        if self.is_registered():
            return True
        remoting.register_now(host=HOST, port=self.port)
        return self.is_registered()

    def is_registered(self) -> bool:
        """Ask the name server."""
        known = remoting.registered_brokers(host=HOST, port=self.settings.ports["namesrv"])
        return known.get(BROKER) == f"{HOST}:{self.port}"


class Proxy(RocketMQProgram):
    """Speaks gRPC with the clients; CLUSTER mode, for LOCAL turns every refusal into one error."""

    name = "proxy"
    title = "RocketMQ proxy"
    main = "org.apache.rocketmq.proxy.ProxyStartup"
    memory = ("-Xms128m", "-Xmx384m", "-XX:MaxDirectMemorySize=256m")
    flags = QUICK_COMPILER
    # It keeps nothing, and its own shutdown takes 14 s; what is not acked is redelivered anyway.
    stop_grace_s = 2

    def prepare(self) -> None:
        """Write rmq-proxy.json."""
        ports = self.settings.ports
        configuration = {
            "rocketMQClusterName": CLUSTER,
            "localServeAddr": HOST,
            "namesrvAddr": self.namesrv_address,
            "grpcServerPort": ports["proxy_grpc"],
            "remotingListenPort": ports["proxy_remoting"],
            "maxMessageSize": MAX_MESSAGE_BYTES,
            # its default of 10 s would round every shorter invisible time up
            "minInvisibleTimeMillsForRecv": 1000,
            # What the proxy asks while the broker is down ("no route", "type unspecified") it keeps
            # until the next refresh; with the default of 20 s that outlasts the broker's restart.
            "topicRouteServiceCacheRefreshSeconds": 2,
            "topicConfigCacheRefreshSeconds": 2,
            "subscriptionGroupConfigCacheRefreshSeconds": 2,
            # else it asks the broker once for each message that a consumer acks together
            "enableBatchAck": True,
            "grpcProducerThreadPoolNums": 8,
            "grpcConsumerThreadPoolNums": 8,
            "metricsExporterType": "PROM",
            "metricsPromExporterHost": HOST,
            "metricsPromExporterPort": ports["proxy_metrics"],
        }
        self.home.mkdir(parents=True, exist_ok=True)
        text = json.dumps(configuration, indent=2)
        (self.home / "rmq-proxy.json").write_text(text + "\n", encoding="utf-8")

    def arguments(self) -> Sequence[str]:
        """Return the arguments of the program."""
        file = str(self.home / "rmq-proxy.json")
        return ["-pm", "cluster", "-n", self.namesrv_address, "-pc", file]

    def is_ready(self) -> bool:
        """Tell whether it serves."""
        return answers(self.port) and self.said("startup successfully")

    def start(self) -> None:
        """Launch it once the broker is registered: it would die creating its system topic."""
        if self.process is None:
            broker = Broker(folder=self.folder, settings=self.settings)
            if not processes.wait_until(broker.is_registered, timeout_s=30, every_s=0.05):
                raise StackError(f"{self.title} needs a registered broker: bin/stack start broker")
        super().start()


def write_mqadmin(*, folder: RunFolder, settings: Settings) -> None:
    """Write the wrapper script of the admin tool: it knows the name server's address."""
    home = folder.path / "rocketmq" / "mqadmin"
    home.mkdir(parents=True, exist_ok=True)
    command = java.command(
        main="org.apache.rocketmq.tools.command.MQAdminStartup",
        home=home,
        logback="rmq.tools.logback.xml",
        memory=("-Xms64m", "-Xmx192m"),
        flags=("-XX:TieredStopAtLevel=1",),
    )
    lines = [
        "#!/bin/sh",
        "# RocketMQ's admin tool against this stack. It exits 0 even on failure: read its output.",
        f"export NAMESRV_ADDR={HOST}:{settings.ports['namesrv']}",
        f'exec {shlex.join(command)} "$@"',
    ]
    folder.mqadmin.write_text("\n".join(lines) + "\n", encoding="utf-8")
    folder.mqadmin.chmod(0o755)
