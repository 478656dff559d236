"""`bin/demo --observe`: a real Prometheus beside the run, with the product's own rules.

Every process gets a metrics port; the web processes answer for each other. Only the addresses that
are scraped differ from `deploy/prometheus`.
"""

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from devstack import prometheus
from devstack.ports import is_free
from seckill.demo.processes import free_port
from seckill.demo.supervision import CHECKOUT, Program

_HOST: Final = "127.0.0.1"
_FIRST_PORT: Final = 19_100
_SCRAPE: Final = "2s"
_FIRED: Final = 'count by (alertname, severity) (max_over_time(ALERTS{alertstate="firing"}[1h]))'


class Observation:
    """Prometheus for one run.

    Args:
        folder: of the run; configuration and data live there.

    Raises:
        StackError: Prometheus is not installed; the text says what to do.
    """

    def __init__(self, folder: Path) -> None:
        self._program = prometheus.require("prometheus")
        self._folder = folder / "prometheus"
        self._shared = folder / "web-metrics"
        self._ports: dict[str, int] = {}
        self.port = free_port(9090)

    @property
    def url(self) -> str:
        """Address of Prometheus."""
        return f"http://{_HOST}:{self.port}"

    def adapt(self, program: Program) -> Program:
        """Give a program's processes their metrics ports."""
        if program.name == "web":
            shutil.rmtree(self._shared, ignore_errors=True)  # numbers of an earlier run
            self._shared.mkdir(parents=True)
            return _with(program, {"PROMETHEUS_MULTIPROC_DIR": str(self._shared)})
        # Ports of a program differ in the last digit, which the supervisor writes.
        base = self._free_ten(program.count)
        self._ports[program.name] = base * 10
        port = f"{base}{{number}}" if program.count > 1 else f"{base}0"
        return _with(program, {"SECKILL_METRICS_PORT": port})

    def _free_ten(self, count: int) -> int:
        """Return a tenth of a port from which on `count` are free, and that no program has."""
        taken = {port // 10 for port in self._ports.values()}
        return next(
            ten
            for ten in range(_FIRST_PORT // 10, 6_000)
            if ten not in taken and all(is_free(10 * ten + n) for n in range(count))
        )

    def more(self, programs: Sequence[Program], *, web_port: int, broker: str) -> Program:
        """Write the configuration and return Prometheus itself.

        Args:
            programs: what runs.
            web_port: of the web processes.
            broker: address of the broker's exporter; may be empty.
        """
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        targets = {"web": [f"{_HOST}:{web_port}"]}
        for program in programs:
            if program.name in self._ports:
                first = self._ports[program.name]
                targets[program.name] = [f"{_HOST}:{first + n}" for n in range(program.count)]
        configuration = self._folder / "prometheus.yml"  # JSON is YAML
        configuration.write_text(json.dumps(_configuration(targets, broker=broker), indent=2))
        return Program(
            name="prometheus",
            argv=(
                str(self._program),
                f"--config.file={configuration}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address={_HOST}:{self.port}",
                "--log.level=warn",
            ),
        )

    def fired(self) -> list[str]:
        """Return the alerts that fired within the last hour: `Name (severity)`."""
        query = urllib.parse.urlencode({"query": _FIRED})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=5) as answer:  # noqa: S310
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return sorted(
            f"{one['metric']['alertname']} ({one['metric']['severity']})" for one in found
        )


def _configuration(targets: Mapping[str, list[str]], *, broker: str) -> dict[str, Any]:
    jobs: list[dict[str, Any]] = [
        {
            "job_name": "seckill",
            "static_configs": [
                {"targets": addresses, "labels": {"role": role}}
                for role, addresses in targets.items()
            ],
        }
    ]
    if broker:
        address = urllib.parse.urlsplit(broker)
        jobs.append({"job_name": "rocketmq", "static_configs": [{"targets": [address.netloc]}]})
    return {
        "global": {"scrape_interval": _SCRAPE, "evaluation_interval": _SCRAPE},
        "rule_files": [str(CHECKOUT / "deploy" / "prometheus" / "alerts.yml")],
        "scrape_configs": jobs,
    }


def _with(program: Program, environment: Mapping[str, str]) -> Program:
    return replace(program, environment={**program.environment, **environment})
