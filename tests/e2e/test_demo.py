"""`bin/demo` from an empty run folder to an audited result, as a newcomer runs it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from devstack.stack import Stack

ROOT = Path(__file__).resolve().parents[2]
BUYERS = 600
STOCK = 50
KEYS = {
    "accepted",
    "sold_out",
    "orders",
    "paid",
    "canceled",
    "refunded",
    "oversold",
    "lost",
    "broken",
    "duplicates",
    "breaches",
}


@pytest.mark.process
@pytest.mark.timeout(180)
def test_a_small_sale_ends_audited_and_leaves_nothing_running(tmp_path):
    run_dir, target = tmp_path / "run", tmp_path / "result.json"
    # What this test run itself uses must not leak in: the demo starts everything of its own.
    own = ("DATABASE_URL", "REDIS_URL", "CACHE_URL", "CELERY_BROKER_URL", "DJANGO_", "SECKILL_")
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith((*own, "ROCKETMQ_", "PROMETHEUS_"))
    }
    done = subprocess.run(
        [
            *(ROOT / "bin" / "demo", "--exit", "--json", target),
            *("--buyers", str(BUYERS), "--stock", str(STOCK)),
        ],
        env=environment | {"SECKILL_RUN_DIR": str(run_dir)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(target.read_text())
    assert result.keys() >= KEYS
    exact = ("oversold", "lost", "broken", "duplicates", "refunded", "breaches")
    assert {key: result[key] for key in exact} == {
        "oversold": 0,
        "lost": 0,
        "broken": 0,
        "duplicates": 0,
        "refunded": 0,
        "breaches": [],
    }
    assert result["accepted"] >= STOCK
    # Every promise became an order; more only for buyers whose answer was lost.
    unclear = result["codes"].get("503 RESULT_UNKNOWN", 0) + sum(result["errors"].values())
    assert 0 <= result["orders"] - result["accepted"] <= unclear
    assert result["paid"] + result["canceled"] == result["orders"]
    assert 0 < result["paid"] <= STOCK
    assert result["canceled"] > 0
    assert result["sold_out"] > BUYERS - STOCK
    assert "\x1b" not in done.stdout  # no terminal: plain lines
    assert "Conservation table" in done.stdout
    assert "was started again" not in done.stdout  # no process died
    up = [name for name, entry in Stack(run_dir).status()["services"].items() if entry["up"]]
    assert up == []
    assert not (run_dir / "demo" / "supervisord.json").exists()
    assert done.stderr.count("Traceback") == 0
