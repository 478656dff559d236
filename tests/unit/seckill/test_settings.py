"""An ill-formed variable ends the start with one line that names it, whichever variable it is."""

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = ROOT / "seckill" / "settings.py"


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("SECKILL_BATCH_MAX", "many", "Not a valid integer."),
        ("SECKILL_SESSION_STATEMENT_TIMEOUT_MS", "1min", "Not a valid integer."),
        ("SECKILL_PAYMENT_PROVIDERS", "orders.payments", "Not key=value,key=value."),
        ("SECKILL_LOG_LEVEL", "LOUD", "Not one of INFO, DEBUG, WARNING, ERROR, CRITICAL."),
        ("SECKILL_LOG_FORMAT", "xml", "Not one of json, console."),
        ("DATABASE_URL", "nowhere", "Not a valid database URL."),
    ],
)
def test_an_ill_formed_value_is_one_line(monkeypatch, capsys, name, value, what) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SETTINGS))

    assert ended.value.code == 78
    assert capsys.readouterr().err == f'seckill: Environment variable "{name}" invalid: {what}\n'


def test_a_missing_variable_is_one_line(monkeypatch, capsys) -> None:
    monkeypatch.delenv("REDIS_URL")

    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SETTINGS))

    assert ended.value.code == 78
    said = capsys.readouterr().err
    assert said.startswith("seckill: the environment variable REDIS_URL is missing")
    assert said.count("\n") == 1


def test_no_variable_is_read_outside_the_net() -> None:
    def reads(tree: ast.AST) -> set[int]:
        names = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "env")
        return {n.lineno for n in names if isinstance(n.ctx, ast.Load)}

    module = ast.parse(SETTINGS.read_text())
    caught = [n for n in module.body if isinstance(n, ast.Try | ast.FunctionDef)]

    assert reads(module) == set().union(*map(reads, caught))


@pytest.mark.parametrize("spec", ["nowhere=kill", "replay.after_commit=kill@soon"])
def test_an_ill_formed_faultpoint_is_one_line(spec: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import faultpoint"],
        cwd=ROOT,
        env=os.environ | {"SECKILL_FAULTPOINTS": spec},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 78
    assert ended.stderr == (
        f"seckill: SECKILL_FAULTPOINTS: {spec!r} is not <point>=kill|stop|raise[@N]\n"
    )
