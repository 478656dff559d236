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

from chaos import document, plan, results
from chaos.catalogue import FAULTS, Excuse
from chaos.faults import governor
from chaos.wires import HOST, Wires
from seckill.governor import view

ROOT: Final = Path(__file__).resolve().parents[2]
MANY: Final = range(300)
SHORT: Final = 19  # killed at two points and a redelivery storm: they strike on any machine


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


def test_a_fault_at_a_replay_point_has_something_to_replay() -> None:
    for one in map(plan.draw, MANY):
        at_replay = [fault.name for fault in one.faults if fault.name in plan.AT_REPLAY]
        assert not at_replay or one.dead


def test_what_nobody_can_read_dies_only_where_its_owner_is_known() -> None:
    drawn = {dead.how for seed in MANY for dead in plan.draw(seed).dead}
    assert drawn == {"bug", "newer_schema", "cut_off"}
    for one in map(plan.draw, MANY):
        assert Excuse.LOSS not in one.excuses or "cut_off" not in {d.how for d in one.dead}


@pytest.mark.parametrize("target", FAULTS["governor_spoken_over"].targets)
def test_what_is_said_in_the_governors_place_is_what_its_name_says(target: str) -> None:
    """Garbage is heard as silence; extremes are a decision that everybody has to survive."""
    text = governor.said_instead(target)
    heard = view.decode(text)
    assert (heard is None) == (target in {"lead", "garbage", "nested"})
    if target == "closed":
        assert heard is not None
        assert heard.level is view.Level.FAIL_CLOSED
    if target == "idle":
        assert heard is not None
        assert {pace.workers for pace in heard.groups.values()} == {0}


def test_a_fault_counts_as_survived_when_it_struck_and_nothing_broke() -> None:
    def record(struck: bool, *breaches: str) -> dict[str, Any]:
        return {"faults": [{"name": "cut", "struck": struck}], "breaches": list(breaches)}

    table = results.fault_table([record(True), record(False), record(True, "oversold is 1")])
    assert table["cut"] == {"drawn": 3, "struck": 2, "survived": 1}


def test_what_says_little_without_its_target_is_counted_by_target() -> None:
    def record(name: str, target: str, *, struck: bool) -> dict[str, Any]:
        return {"faults": [{"name": name, "target": target, "struck": struck}], "breaches": []}

    table = results.fault_table(
        [
            record("kill_at_point", "web.after_send", struck=True),
            record("kill_at_point", "web.after_mark", struck=False),
            record("provider_fault", "refund:decline", struck=False),  # no longer in the catalogue
            record("provider_fault", "webhook:drop", struck=False),
        ]
    )

    assert table["kill_at_point web.after_send"] == {"drawn": 1, "struck": 1, "survived": 1}
    assert table["kill_at_point web.after_mark"] == {"drawn": 1, "struck": 0, "survived": 0}
    gaps = results.gaps(table)
    assert gaps["drawn, never struck"] == [
        "kill_at_point web.after_mark",
        "provider_fault webhook:drop",
    ]
    assert "kill_at_point sender.after_claim" in gaps["never drawn"]
    assert "cut" in gaps["never drawn"]
    assert "kill_at_point web.after_send" not in gaps["never drawn"]


def test_every_recorded_line_is_readable() -> None:
    records = results.load()
    table = results.fault_table(records)
    assert sum(counts["drawn"] for counts in table.values()) > len(records)
    assert "kill_at_point | web.after_send |" in document.as_markdown(records)


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


def test_a_wire_tells_the_requests_that_went_through_it(echo: int) -> None:
    made = Wires({"echo": echo}, listen_to=("echo",))
    try:
        with _connect(made) as client:
            client.sendall(b"POST /v1/payments HTTP/1.1\r\nHost: x\r\n\r\n{}")
            assert client.recv(100)
            client.sendall(b"GET /v1/payments?idempotency_key=k HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(100)
        seen = [(one.method, one.path) for one in made.requests("echo")]
    finally:
        made.close()
    assert seen == [("POST", "/v1/payments"), ("GET", "/v1/payments")]


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
    """One or two sales under faults on a stack of their own, and one that was tampered with."""
    out = tmp_path / "result.json"
    argv = [sys.executable, "-m", "chaos", "--seeds", "2", "--from", str(SHORT), "--no-jvm"]
    argv += ["--within", "50", "--prove", "--json", str(out), "--run-dir", str(tmp_path / "run")]
    with (tmp_path / "told").open("w+") as told:
        try:
            done = subprocess.run(
                [*argv, "--record", str(tmp_path / "seeds.jsonl")],
                cwd=ROOT,
                stdout=told,
                stderr=told,
                timeout=280,
                check=False,
            )
        except subprocess.TimeoutExpired:
            pytest.fail((tmp_path / "told").read_text()[-6_000:])
    assert done.returncode == 0, (tmp_path / "told").read_text()[-6_000:]
    found = json.loads(out.read_text())
    assert found["breaches"] == []
    assert found["seeds"] in ([SHORT], [SHORT, SHORT + 1])
    assert sum(counts["survived"] for counts in found["faults"].values()) >= 1
    proof = {line.split(":")[0] for line in found["proof"]}
    assert proof >= {"gate_stock", "stock_conservation", "lost", "no rest", "order_without_holder"}
    said = " | ".join(found["proof"])
    assert "audit chain" in said
    assert "open item CG_SECKILL_ORDER_CREATE_PG_V1 INVALID_JSON" in said
