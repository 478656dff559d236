"""What the client package does to the process that loads it: logging, start-up, forks, sockets."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from messaging import topology
from tests.contract.broker.harness import Harness

ROOT = Path(__file__).resolve().parents[3]


def _python(code: str, **environ: str) -> dict[str, object]:
    """Run code in a fresh process with Django set up; it prints one JSON object."""
    program = "import json, logging, os, sys\nimport django\ndjango.setup()\n" + textwrap.dedent(
        code
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "seckill.settings", **environ},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_the_client_does_not_take_over_logging(tmp_path: Path) -> None:
    found = _python(
        """
        before = [repr(h) for h in logging.getLogger().handlers]
        from messaging.broker.rocketmq_channel import protocol
        protocol()
        logger = logging.getLogger("rocketmq-python-client")
        print(json.dumps({
            "same": before == [repr(h) for h in logging.getLogger().handlers],
            "own": [repr(h) for h in logger.handlers],
            "propagate": logger.propagate,
        }))
        """,
        HOME=str(tmp_path),
    )

    assert found == {"same": True, "own": [], "propagate": True}
    assert list(tmp_path.iterdir()) == []


def test_the_trap_in_the_clients_logging_is_still_there(tmp_path: Path) -> None:
    """When this fails, the stand-in in `protocol()` may go."""
    subprocess.run(
        [sys.executable, "-c", "import rocketmq"],
        env={"HOME": str(tmp_path)},
        check=True,
        timeout=60,
    )

    assert (tmp_path / "logs" / "rocketmq_python").is_dir()


def test_django_does_not_pay_for_the_client() -> None:
    found = _python(
        """
        import messaging.broker, messaging.broker.base, messaging.broker.memory
        import messaging.checks, messaging.provision
        print(json.dumps({n: n in sys.modules for n in ("grpc", "rocketmq", "google.protobuf")}))
        """
    )

    assert found == {"grpc": False, "rocketmq": False, "google.protobuf": False}


def test_a_fork_after_the_first_connection_is_refused_not_hung(real: Harness) -> None:
    found = _python(
        """
        from messaging.broker import broker
        producer = broker().producer()
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                broker().producer()
                os.write(write, b"made")
            except RuntimeError as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        print(json.dumps({"child": os.read(read, 1000).decode()}))
        """
    )

    assert "before it forked" in str(found["child"])


def test_a_broker_made_before_a_fork_works_in_the_child(real: Harness) -> None:
    """Only clients open connections: the factory itself may be inherited."""
    found = _python(
        """
        from messaging.broker import broker
        from messaging.broker.base import OutgoingMessage
        inherited = broker()
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            result = inherited.producer().send([OutgoingMessage(
                topic="ORDER_CREATE_V1", message_id="evt_fork", body=b"{}", tag="CREATE_ORDER",
                keys=(),
            )], timeout_ms=3000)
            os.write(write, result.outcome.encode())
            os._exit(0)
        os.waitpid(pid, 0)
        print(json.dumps({
            "child": os.read(read, 100).decode(), "same": broker() is inherited,
        }))
        """,
        SECKILL_TOPIC_PREFIX=topology.physical_topic(""),
    )

    assert found == {"child": "CONFIRMED", "same": True}


def test_a_network_that_swallows_packets_is_noticed_in_seconds(real: Harness) -> None:
    """TCP_USER_TIMEOUT of every connection of a producer, in ms; the kernel's own is 15 minutes."""
    found = _python(
        """
        import socket
        from messaging.broker import broker
        from messaging.broker.base import OutgoingMessage
        producer = broker().producer()  # kept: its connection ends with it
        result = producer.send([OutgoingMessage(
            topic="ORDER_CREATE_V1", message_id="evt_timeout", body=b"{}", tag="CREATE_ORDER",
            keys=(),
        )], timeout_ms=3000)
        timeouts = []
        for fd in map(int, os.listdir("/proc/self/fd")):
            try:
                connected = socket.socket(fileno=os.dup(fd))
                connected.getpeername()
            except OSError:
                continue
            with connected:
                if connected.family in (socket.AF_INET, socket.AF_INET6):
                    timeouts.append(
                        connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                    )
        print(json.dumps({"sent": result.outcome, "timeouts_ms": timeouts}))
        """,
        SECKILL_TOPIC_PREFIX=topology.physical_topic(""),
    )

    assert found == {"sent": "CONFIRMED", "timeouts_ms": [5_000]}
