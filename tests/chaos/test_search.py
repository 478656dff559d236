"""The fault search: the same seed is the same plan, a tampered sale is noticed, a short run."""

import json
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from chaos import plan, results
from chaos.catalogue import FAULTS, Excuse
from chaos.wires import HOST, Wires

ROOT: Final = Path(__file__).resolve().parents[2]
MANY: Final = range(300)


# -- plans --------------------------------------------------------------------------------------


def test_a_seed_is_a_plan() -> None:
    assert [plan.draw(seed) for seed in MANY] == [plan.draw(seed) for seed in MANY]
    assert len({plan.draw(seed).faults for seed in MANY}) > 250


def test_every_fault_is_drawn_sooner_or_later() -> None:
    drawn = {fault.name for seed in MANY for fault in plan.draw(seed).faults}
    assert drawn == set(FAULTS)


def test_one_seed_of_five_takes_a_java_process_down() -> None:
    with_jvm = [s for s in MANY if any(FAULTS[f.name].jvm for f in plan.draw(s).faults)]
    assert with_jvm == [seed for seed in MANY if seed % 5 == 0]
    assert not any(
        FAULTS[fault.name].jvm for seed in MANY for fault in plan.draw(seed, jvm=False).faults
    )


def test_only_faults_that_may_cost_something_make_reservations_short() -> None:
    for seed in MANY:
        one = plan.draw(seed)
        assert (one.validity_s < 300) == bool(one.excuses - {Excuse.NOTHING})


def test_a_fault_counts_as_survived_when_it_struck_and_nothing_broke() -> None:
    def record(struck: bool, *breaches: str) -> dict[str, Any]:
        return {"faults": [{"name": "cut", "struck": struck}], "breaches": list(breaches)}

    table = results.fault_table([record(True), record(False), record(True, "oversold is 1")])
    assert table["cut"] == {"drawn": 3, "struck": 2, "survived": 1}


# -- wires --------------------------------------------------------------------------------------


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with suppress(ConnectionError):  # a wire that is cut
            while data := self.request.recv(1_000):
                self.request.sendall(data)


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends everything back; at the end each connection is closed and awaited."""
    with socketserver.ThreadingTCPServer((HOST, 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join(5)


@pytest.fixture
def wires(echo: int) -> Iterator[Wires]:
    made = Wires({"echo": echo})
    yield made
    made.close()


def _connect(wires: Wires) -> socket.socket:
    client = socket.create_connection((HOST, wires.port("echo")), timeout=5)
    client.settimeout(5)
    return client


def test_a_silent_wire_holds_every_byte_until_it_heals(wires: Wires) -> None:
    with _connect(wires) as client:
        wires.silence("echo")
        client.sendall(b"late")
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(10)
        wires.heal("echo")
        client.settimeout(5)
        assert client.recv(10) == b"late"


def test_lost_answers_never_come_and_the_connection_ends(wires: Wires) -> None:
    with _connect(wires) as client:
        client.sendall(b"one")
        assert client.recv(10) == b"one"
        wires.lose_answers("echo")
        client.sendall(b"two")
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(10)
        wires.heal("echo")
        client.settimeout(5)
        with pytest.raises(ConnectionResetError):
            client.recv(10)
    with _connect(wires) as again:
        again.sendall(b"three")
        assert again.recv(10) == b"three"


def test_a_cut_wire_resets_whoever_is_connected(wires: Wires) -> None:
    with _connect(wires) as client:
        client.sendall(b"one")
        assert client.recv(10) == b"one"
        wires.cut("echo")
        with pytest.raises(ConnectionResetError):
            client.recv(10)


# -- the real thing -----------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.timeout(300)
def test_a_short_search_finds_no_breach(tmp_path: Path) -> None:
    """Two sales under faults on a stack of their own, and one whose gate was tampered with."""
    out, lines = tmp_path / "result.json", tmp_path / "seeds.jsonl"
    argv = [sys.executable, "-m", "chaos", "--seeds", "2", "--from", "16", "--no-jvm"]
    done = subprocess.run(
        [
            *argv,
            "--json",
            str(out),
            "--run-dir",
            str(tmp_path / "run"),
            "--prove",
            "--record",
            str(lines),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-2_000:]
    found = json.loads(out.read_text())
    assert found["breaches"] == []
    assert found["seeds"] == [16, 17]
    assert sum(counts["survived"] for counts in found["faults"].values()) >= 2
    proof = {line.split(":")[0] for line in found["proof"]}
    assert proof >= {"gate_stock", "stock_conservation", "lost"}
