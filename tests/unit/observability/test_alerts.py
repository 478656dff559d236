"""Alert rules fire as meant (promtool), have their runbooks, and speak of metrics that exist."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from devstack import prometheus
from devstack.errors import StackError
from seckill.observability.catalogue import METRICS, Kind

ROOT = Path(__file__).resolve().parents[3]
RULES_FILE = ROOT / "deploy" / "prometheus" / "alerts.yml"
RUNBOOKS = ROOT / "docs" / "runbooks"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]
]
CASES = yaml.safe_load(RULES_FILE.with_name("alerts_test.yml").read_text())["tests"]
NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
FUNCTIONS = {"histogram_quantile", "label_replace", "topk"}


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(prometheus.require("promtool")), *arguments],
        cwd=RULES_FILE.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def metric_names(expression: str) -> set[str]:
    """Names of metrics in an expression: no label, no string, no function."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    bare = re.sub(r"\{[^}]*\}", "", bare)
    bare = re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", "", bare)
    return {name for name in NAME.findall(bare) if name not in FUNCTIONS}


def known_names() -> set[str]:
    names = set(METRICS)
    for metric in METRICS.values():
        if metric.kind is Kind.HISTOGRAM:
            names |= {f"{metric.name}{end}" for end in ("_bucket", "_count", "_sum")}
    return names


def test_rules_are_valid() -> None:
    done = promtool("check", "rules", "alerts.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_thresholds_fire_as_meant() -> None:
    done = promtool("test", "rules", "alerts_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_scrape_configuration_is_valid(tmp_path: Path) -> None:
    done = promtool("check", "config", "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_is_tried_by_a_case() -> None:
    tried = {
        (match[0], match[1])
        for case in CASES
        for query in case["promql_expr_test"]
        for sample in query["exp_samples"]
        for match in re.findall(r'alertname="(\w+)", severity="(\w+)"', sample["labels"])
    }
    rules = {(rule["alert"], rule["labels"]["severity"]) for rule in RULES}
    assert tried <= rules
    # What the sources give numbers for, and what must page.
    wanted = {
        (name, severity)
        for name in (
            *("ReservationPendingOld", "ConsumerLag", "SendResultUnknown", "AcksFail"),
            *("DeadMessages", "PoolWait", "OrderTransactionSlow", "ReservationsExpiring"),
            *("GovernorLimitsEntry", "GateRebuildUnfinished", "BacklogLarge"),
        )
        for severity in ("warning", "critical")
    } | {
        ("GateLost", "critical"),
        ("HeldReservationGaveUp", "critical"),
        ("ReconcileDifference", "warning"),
        ("RetentionRefused", "warning"),
        ("AuditChainBroken", "critical"),
        ("GovernorAbsent", "warning"),
        ("ProcessDown", "critical"),
    }
    assert wanted <= tried


def test_alerts_and_runbooks_are_pairs() -> None:
    alerts = {rule["alert"] for rule in RULES}
    pages = {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"}
    assert alerts == pages
    assert all(
        rule["annotations"]["runbook"] == f"docs/runbooks/{rule['alert']}.md" for rule in RULES
    )


@pytest.mark.parametrize("alert", sorted({rule["alert"] for rule in RULES}))
def test_a_runbook_says_what_to_do(alert: str) -> None:
    text = (RUNBOOKS / f"{alert}.md").read_text()
    assert text.startswith(f"# {alert}\n")
    for part in ("## Fires when", "## Look at", "## Do", "## Over when"):
        assert part in text
    # It quotes the rules as they are.
    for rule in (rule for rule in RULES if rule["alert"] == alert):
        assert f"`{' '.join(rule['expr'].split())}`" in text
        assert f"- {rule['labels']['severity']}" in text
    index = (RUNBOOKS / "README.md").read_text()
    assert f"[{alert}]({alert}.md)" in index


def test_every_rule_has_a_severity_and_a_summary() -> None:
    assert {rule["labels"]["severity"] for rule in RULES} == {"warning", "critical"}
    assert [rule["alert"] for rule in RULES if len(rule["annotations"]["summary"]) < 20] == []


def test_rules_speak_of_metrics_that_exist() -> None:
    unknown = {
        (rule["alert"], name)
        for rule in RULES
        for name in metric_names(rule["expr"]) - known_names() - {"up"}
    }
    assert unknown == set()


def test_every_fault_of_the_sources_has_a_way_to_be_noticed() -> None:
    index = (RUNBOOKS / "README.md").read_text()
    for number in range(1, 13):
        (row,) = re.findall(rf"^\| F{number:02d} \|.*$", index, re.MULTILINE)
        assert ".md)" in row


def test_without_promtool_the_tests_fail_and_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(prometheus, "TOOLS", tmp_path)
    with pytest.raises(StackError, match=r"promtool is not installed: install Debian's package"):
        prometheus.require("promtool")
