"""What the code really defines, to compare with the list and to print the page from."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from prometheus_client import REGISTRY

from seckill.observability.catalogue import CHAPTERS, METRICS, Kind

APPS: Final = ("inventory", "messaging", "orders", "dlq_admin", "seckill")
_CHECKOUT: Final = Path(__file__).resolve().parent.parent.parent
_FOREIGN: Final = "django_"  # what django-prometheus brings


@dataclass(frozen=True, kw_only=True, slots=True)
class Defined:
    """A metric as code defines it."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


def defined() -> dict[str, Defined]:
    """Import every module named `metrics` of our apps; return what the registry has of ours.

    Django must be set up.
    """
    for app in APPS:
        for path in sorted((_CHECKOUT / app).rglob("metrics.py")):
            import_module(".".join(path.relative_to(_CHECKOUT).with_suffix("").parts))
    found: dict[str, Defined] = {}
    for collector in dict.fromkeys(REGISTRY._collector_to_names):
        one: Any = collector
        name = getattr(one, "_name", "")
        if not name or name.startswith(_FOREIGN):
            continue
        kind = Kind(one._type)
        full = f"{name}_total" if kind is Kind.COUNTER else name
        found[full] = Defined(
            name=full, kind=kind, labels=tuple(one._labelnames), help=one._documentation
        )
    return found


def metrics_page() -> str:
    """Return the text of docs/metrics.md."""
    known = defined()
    parts = [
        "# Metrics\n\n"
        "Generated from `seckill/observability/catalogue.py:METRICS` and the code by "
        "`python -m docs.generate`; a test compares list, code and this page. How they are "
        "scraped, logs and health: [observability.md](observability.md). What to do when one is "
        "bad: [runbooks](runbooks/README.md)."
    ]
    for chapter in CHAPTERS:
        rows = [
            f"| `{metric.name}` | {metric.kind.value} | "
            f"{'; '.join(f'`{label}`: {values}' for label, values in metric.labels.items())} | "
            f"{', '.join(process.value for process in metric.by)} | {known[metric.name].help} |"
            for metric in chapter.metrics
        ]
        parts.append(
            f"## {chapter.title}\n| name | type | labels | set by | meaning |\n"
            "|---|---|---|---|---|\n" + "\n".join(rows)
        )
    aliases = sorted(
        (alias, metric.name) for metric in METRICS.values() for alias in metric.aliases
    )
    parts.append(
        "## Other names\nThe sources call some things by several names; these are ours.\n\n"
        "| there | here |\n|---|---|\n"
        + "\n".join(f"| `{alias}` | `{name}` |" for alias, name in aliases)
    )
    parts.append(
        "## Not ours\n`django_*` (requests, latencies, model writes) come from django-prometheus, "
        "`process_*` and `python_*` from the client, `rocketmq_*` from the broker's exporter."
    )
    return "\n\n".join(parts) + "\n"
