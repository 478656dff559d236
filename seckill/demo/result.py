"""The audit at the end: what the system says of itself, and what the buyers were told."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from django.db import connection
from rich.console import Console
from rich.table import Table

from seckill.demo.story import Told
from seckill.demo.supervision import CHECKOUT

KEYS: Final = (
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
)
_ROWS: Final = (
    ("accepted", "reservations promised to buyers"),
    ("orders", "made of them in PostgreSQL"),
    ("paid", "orders kept"),
    ("canceled", "not paid in time, units returned"),
    ("refunded", "paid and given back"),
    ("sold_out", "answers, for the crowd is larger"),
    ("oversold", "must be 0: units sold beyond the stock"),
    ("lost", "must be 0: accepted without order or reason"),
    ("broken", "must be 0: accepted, refused later"),
    ("duplicates", "must be 0: second order or second effect"),
)
_MUST_BE_ZERO: Final = ("oversold", "lost", "broken", "duplicates")
# Each reservation that a buyer was promised must have an outcome; a broken one was refused later.
_OUTCOMES: Final = """
SELECT count(*) FILTER (WHERE r.reservation_id IS NULL AND q.reservation_id IS NULL),
       count(*) FILTER (WHERE r.reject_reason IN ('RESERVATION_EXPIRED', 'NO_FINAL_STOCK'))
FROM unnest(%s::text[]) AS promised (id)
LEFT JOIN orders_reservation r ON r.reservation_id = promised.id
LEFT JOIN LATERAL (SELECT reservation_id FROM messaging_quarantine
                   WHERE reservation_id = promised.id AND status = 'OPEN' LIMIT 1) q ON true
"""


def check_invariants(
    activity_id: int, *, environment: Mapping[str, str], at_rest: bool = False
) -> dict[str, Any]:
    """Run `manage.py check_invariants` as a person would; return its report.

    `at_rest`: the caller waited until nothing moves, so that the youngest are compared, too.
    """
    command = ["manage.py", "check_invariants", "--json", "--activity", str(activity_id)]
    done = subprocess.run(
        [sys.executable, *command, *(["--at-rest"] if at_rest else [])],
        env=dict(environment),
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"breaches": [f"check_invariants failed: {done.stderr.strip()[-500:]}"]}
    if done.returncode and not report.get("breaches"):
        report["breaches"] = [f"check_invariants ended with {done.returncode}"]
    return report


def motion(report: Mapping[str, Any]) -> list[str]:
    """Say what is in motion in a report, one line each; [] at rest.

    Where somebody waited for rest each line is a breach: totals were not compared.
    """
    found = [f"in motion: {what}" for sale in report.get("sales", []) for what in sale["motion"]]
    for row in report.get("money", []):
        unclear = row["payment_unknown"] + row["refund_unknown"]
        if unclear:
            found.append(f"in motion: {unclear} cents ({row['currency']}) are unclear")
    return found


def promised(accepted_ids: list[str]) -> tuple[int, int]:
    """Return how many of the promised reservations are lost, and how many are broken."""
    with connection.cursor() as cursor:
        cursor.execute(_OUTCOMES, [accepted_ids])
        lost, broken = cursor.fetchone()
    return int(lost), int(broken)


def audit(told: Told, *, environment: Mapping[str, str]) -> dict[str, Any]:
    """Compare the system's own report with the buyers' answers; return the result of the demo."""
    report = check_invariants(told.sale.activity_id, environment=environment, at_rest=told.at_rest)
    lost, broken = promised(told.accepted_ids)
    # The story ends closed, with every order paid or cancelled: nothing may be on its way.
    breaches = list(report.get("breaches", [])) + motion(report)
    if not told.at_rest:
        breaches.append("not at rest in time: reservations, releases or unpaid orders are left")
    result = {key: report.get(key, 0) for key in KEYS} | {
        "accepted": len(told.accepted_ids),
        "sold_out": told.load["codes"].get("409 SOLD_OUT", 0),
        "lost": max(lost, int(report.get("lost", 0))),
        "broken": max(broken, int(report.get("broken", 0))),
    }
    breaches += [f"{key} is {result[key]}, must be 0" for key in _MUST_BE_ZERO if result[key]]
    return result | {
        "breaches": breaches,
        "activity": told.sale.activity_id,
        "stock": told.sale.stock,
        "requests": told.load["requests"],
        "codes": told.load["codes"],
        "errors": told.load["errors"],
        "p50_ms": told.load["p50_ms"],
        "p99_ms": told.load["p99_ms"],
        "seconds": round(told.seconds, 1),
        "report": report,
    }


def show(console: Console, result: dict[str, Any]) -> None:
    """Print the conservation table and the verdict."""
    table = Table(title="Conservation table", title_justify="left", show_header=False, width=78)
    table.add_column()
    table.add_column(justify="right", style="bold")
    table.add_column(style="dim")
    for sale in result["report"].get("sales", []):
        offered = sale["initial"] + sale["topped_up"] - sale["cut"]
        table.add_row("units offered", str(offered), "stock + top-ups - cuts")
        table.add_row("  sold", str(sale["live_units"]), "in orders that stand")
        table.add_row("  left", str(sale["available"]), "in PostgreSQL, for the next buyer")
        table.add_row("  withheld", str(sale["withheld"]), "taken off the sale", end_section=True)
    for key, note in _ROWS:
        bad = key in _MUST_BE_ZERO and result[key]
        table.add_row(key.replace("_", " "), str(result[key]), note, style="red" if bad else None)
    console.print(table)
    console.print(
        f"{result['requests']} requests, p50 {result['p50_ms']:.1f} ms,"
        f" p99 {result['p99_ms']:.1f} ms from click to answer; {result['seconds']} s in all",
        soft_wrap=True,
    )
    unclear = result["orders"] - result["accepted"]
    if unclear > 0:
        console.print(
            f"{unclear} orders belong to buyers who got no clear answer and did not ask again",
            soft_wrap=True,
        )
    for breach in result["breaches"]:
        console.print(f"breach: {breach_text(breach)}", style="red", soft_wrap=True)
    if not result["breaches"]:
        console.print("no breach: every unit is accounted for", style="green")


def breach_text(breach: Any) -> str:
    """Return one line for a breach, ours (text) or of `check_invariants` (a record)."""
    if not isinstance(breach, dict):
        return str(breach)
    return f"{breach['rule']}: {breach['count']}, for example {', '.join(breach['samples'][:3])}"
