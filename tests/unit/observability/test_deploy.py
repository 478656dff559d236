"""deploy/ is whole: compose file, image, Prometheus and Grafana speak of what exists."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands, load_command_class

from seckill.demo.processes import product_programs
from tests.unit.observability.test_alerts import known_names, metric_names, promtool

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
APP = {name: s for name, s in SERVICES.items() if s["image"] == "seckill:local"}
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "seckill.json").read_text())
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
EXPRESSIONS = [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())
]
VARIABLE = re.compile(r"\$\{(\w+)[^}]*\}")


def test_every_process_of_the_demo_has_its_container() -> None:
    def essence(argv: tuple[str, ...]) -> str:
        """The command without interpreter, addresses and folders."""
        text = " ".join(argv)
        found = re.search(r"(run_\w+)|celery|granian", text)
        assert found, text
        return found[0]

    by_name = {program.name: program.argv[1:] for program in product_programs(port=8000)}
    options = {word for word in by_name["side"] if word.startswith("--")}
    assert options <= set(APP["side"]["command"])
    demo = {essence(program.argv) for program in product_programs(port=8000)}
    assert demo <= {essence(tuple(s["command"])) for name, s in APP.items() if name != "setup"}


@pytest.mark.parametrize("name", sorted(APP))
def test_commands_exist_and_take_their_arguments(name: str) -> None:
    command = APP[name]["command"]
    calls = [part.split() for part in command[2].split("&&")] if command[0] == "sh" else [command]
    for words in calls:
        if words[1:2] != ["manage.py"]:
            assert words[0] in {"granian", "celery"}
            continue
        app = get_commands()[words[2]]
        parsed = load_command_class(app, words[2]) if isinstance(app, str) else app
        parsed.create_parser("manage.py", words[2]).parse_args(words[3:])


def test_services_name_services_volumes_and_files_that_exist() -> None:
    for name, service in SERVICES.items():
        wanted = service.get("depends_on", {})
        assert set(wanted) <= set(SERVICES), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), volume
            else:
                assert source in COMPOSE["volumes"], volume
        for other, how in wanted.items() if isinstance(wanted, dict) else ():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other], other


def test_every_variable_stands_in_the_example() -> None:
    used = set(VARIABLE.findall((DEPLOY / "compose.yaml").read_text()))
    example = {
        line.split("=")[0]
        for line in (DEPLOY / "env.example").read_text().splitlines()
        if "=" in line and not line.startswith("#")
    }
    assert used == example
    filled = [
        line
        for line in (DEPLOY / "env.example").read_text().splitlines()
        if re.fullmatch(r"\w+=.+", line)
    ]
    assert filled == []  # a secret with a default is a known one


def _value(variable: "re.Match[str]") -> str:
    """A plausible value of a variable of the example."""
    if variable[1] == "SECKILL_TRUSTED_ORIGINS":
        return "https://shop.example"
    return "shop.example" if variable[1] == "SECKILL_ALLOWED_HOSTS" else "aB3-x9Kq" * 8


def test_settings_start_with_the_environment_of_the_containers(tmp_path: Path) -> None:
    environment = {
        name: VARIABLE.sub(_value, str(value)) for name, value in APP["web"]["environment"].items()
    }
    environment["PROMETHEUS_MULTIPROC_DIR"] = str(tmp_path)
    done = subprocess.run(
        [str(ROOT / ".venv" / "bin" / "python"), "manage.py", "check", "--deploy"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(APP))
def test_containers_of_ours_are_locked_down(name: str) -> None:
    service = APP[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "user" not in service  # the image's own: 10001


def test_processes_own_nothing_in_the_database() -> None:
    urls = {name: service["environment"]["DATABASE_URL"] for name, service in APP.items()}
    owners = {name for name, url in urls.items() if url.startswith("postgresql://seckill:")}
    assert owners == {"setup", "celery"}  # migrations; partitions


def test_only_loopback_ports_are_published() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_image_runs_as_an_ordinary_user_and_has_every_package() -> None:
    assert re.search(r"^USER 10001:10001$", DOCKERFILE, re.MULTILINE)
    copied = set(re.findall(r"^COPY (\w+) \w+$", DOCKERFILE, re.MULTILINE))
    tool = (ROOT / "pyproject.toml").read_text()
    packages = set(re.findall(r'"(\w+)"', re.search(r"^root_packages = \[(.*)\]", tool, re.M)[1]))  # type: ignore[index]
    assert packages | {"templates"} <= copied
    assert all((ROOT / name).is_dir() for name in copied)
    assert (DEPLOY / "entrypoint.sh").stat().st_mode & 0o111


def test_prometheus_scrapes_every_process() -> None:
    (ours,) = [job for job in PROMETHEUS["scrape_configs"] if job["job_name"] == "seckill"]
    targets = {
        target.split(":")[0]: (target.split(":")[1], group["labels"]["role"])
        for group in ours["static_configs"]
        for target in group["targets"]
    }
    assert set(targets) == set(APP) - {"setup"}
    for name, (port, role) in targets.items():
        assert role == APP[name]["environment"]["SECKILL_ROLE"]
        expected = "8000" if name == "web" else APP[name]["environment"]["SECKILL_METRICS_PORT"]
        assert port == str(expected)


def test_the_dashboard_speaks_of_metrics_that_exist() -> None:
    foreign = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes"}
    bare = [expression.replace("$__rate_interval", "1m") for expression in EXPRESSIONS]
    unknown = {n for e in bare for n in metric_names(e) if n not in known_names() | foreign}
    assert EXPRESSIONS
    assert unknown == set()


def test_the_dashboards_expressions_are_valid(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{n}", "expr": e.replace("$__rate_interval", "1m")}
        for n, e in enumerate(EXPRESSIONS)
    ]
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_uses_the_provisioned_source() -> None:
    sources = yaml.safe_load(
        (DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text()
    )
    uids = {source["uid"] for source in sources["datasources"]}
    used = {t["datasource"]["uid"] for p in DASHBOARD["panels"] for t in p.get("targets", ())}
    assert used == uids
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_the_brokers_files_keep_what_the_code_needs() -> None:
    broker = dict(
        line.split("=", 1)
        for line in (DEPLOY / "rocketmq/broker.conf").read_text().splitlines()
        if line and not line.startswith("#")
    )
    proxy = json.loads((DEPLOY / "rocketmq/rmq-proxy.json").read_text())
    assert broker["timerWheelEnable"] == "true"  # POP and delayed messages need it
    assert broker["autoCreateTopicEnable"] == broker["autoCreateSubscriptionGroup"] == "false"
    assert broker["flushDiskType"] == "SYNC_FLUSH"
    assert proxy["minInvisibleTimeMillsForRecv"] == 1000
    environment = APP["web"]["environment"]
    assert environment["ROCKETMQ_ENDPOINTS"] == f"proxy:{proxy['grpcServerPort']}"
    exporter = f"http://broker:{broker['metricsPromExporterPort']}/metrics"
    assert environment["ROCKETMQ_METRICS_URL"] == exporter


def test_the_gates_redis_never_forgets_and_never_evicts() -> None:
    text = (DEPLOY / "redis/redis.conf").read_text()
    for line in ("appendonly yes", "appendfsync always", "maxmemory-policy noeviction"):
        assert line in text.splitlines()
