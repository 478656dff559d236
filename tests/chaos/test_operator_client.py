"""The operators' process as the search sees it: only a fault may end it, all else is a breach."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import operator_client
from chaos.operator_client import OperatorClient


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OperatorClient:
    monkeypatch.setattr(operator_client, "HANGS_S", 5.0)
    return OperatorClient(environment=os.environ, log=tmp_path / "log")


def _runs(client: OperatorClient, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let the client's process be a script that does not know Django."""

    def started() -> "subprocess.Popen[str]":
        with client._log.open("a", encoding="utf-8") as log:
            return subprocess.Popen(
                [sys.executable, "-c", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    monkeypatch.setattr(client, "_started", started)


def _do(client: OperatorClient) -> str:
    return client.do("cut", activity_id=1, sku_id=1, units=1, operation_id="op")


@pytest.mark.parametrize(
    ("script", "crashes"),
    [
        ("import os; input(); os.kill(os.getpid(), 9)", []),
        ("input(); raise RuntimeError('fault point cancel.before_commit')", []),
        ("input(); raise ValueError('no service lets this out')",
         ["cut crashed: ValueError: no service lets this out"]),
    ],
)  # fmt: skip
def test_only_a_kill_or_a_fault_point_ends_it(
    client: OperatorClient, monkeypatch: pytest.MonkeyPatch, script: str, crashes: list[str]
) -> None:
    _runs(client, monkeypatch, script)

    assert _do(client) == "died"

    assert client.crashes == crashes


def test_a_step_without_an_answer_ends_and_is_told(
    client: OperatorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_client, "HANGS_S", 0.1)
    _runs(client, monkeypatch, "import threading; threading.Event().wait()")

    assert _do(client) == "died"

    assert len(client.crashes) == 1
    assert client.crashes[0].startswith("cut hung for 0 s")
