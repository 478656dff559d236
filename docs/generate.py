"""Writes the pages that come from code: `python -m docs.generate [--check]`.

docs/states.md holds a chart of each state machine, drawn from the `ALLOWED` maps themselves;
docs/problems.md lists every refusal that a client can get; docs/metrics.md every metric.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import django

from inventory import states as inventory_states
from orders import states as orders_states
from orders.payments import states as payment_states
from seckill.admission.problems import PROBLEMS
from seckill.observability.registry import metrics_page

HERE = Path(__file__).parent
MACHINES: dict[str, tuple[str, Mapping[StrEnum, frozenset[StrEnum]]]] = {
    "Order": (
        "PostgreSQL, `orders_order.status`. Every arrow is one guarded UPDATE that also raises "
        "`aggregate_version` and writes an event into the outbox; to PAYING and REFUNDING there "
        "is no event.",
        orders_states.ORDER_ALLOWED,  # type: ignore[dict-item]
    ),
    "Release of a reservation": (
        "PostgreSQL, `orders_reservation.release_state`: DUE is written by the transaction that "
        "justifies the release, DONE after the gate has answered.",
        orders_states.RELEASE_ALLOWED,  # type: ignore[dict-item]
    ),
    "Payment attempt": (
        "PostgreSQL, `orders_payment_attempt.status`: CREATED is committed before anything is "
        "sent. FAILED is left only for money that arrived after all.",
        payment_states.ATTEMPT_ALLOWED,  # type: ignore[dict-item]
    ),
    "Refund": (
        "PostgreSQL, `orders_refund.status`: one for each captured attempt that its order does not "
        "keep. FAILED always has an open item for people, who may try again.",
        payment_states.REFUND_ALLOWED,  # type: ignore[dict-item]
    ),
    "Webhook": (
        "PostgreSQL, `orders_webhook.status`: event and effect are one transaction.",
        payment_states.WEBHOOK_ALLOWED,  # type: ignore[dict-item]
    ),
    "Reservation at the gate": (
        "Redis, `status` of the reservation hash. RELEASED is final.",
        inventory_states.GATE_RESERVATION_ALLOWED,  # type: ignore[dict-item]
    ),
    "Activity": (
        "PostgreSQL, `inventory_activity.status`; the gate follows.",
        inventory_states.ACTIVITY_ALLOWED,  # type: ignore[dict-item]
    ),
    "Notification": (
        "PostgreSQL, `orders_notification.status`: SENDING is committed before anything leaves. "
        "UNKNOWN is never sent again by itself; a person may.",
        orders_states.NOTIFICATION_ALLOWED,  # type: ignore[dict-item]
    ),
    "Rebuild run": (
        "PostgreSQL, `inventory_rebuildrun.status`: every step carries the run's number; a newer "
        "run overtakes it.",
        inventory_states.REBUILD_ALLOWED,  # type: ignore[dict-item]
    ),
    "Gate operation": (
        "PostgreSQL, `inventory_gateoperation.status`: the row is the intent, the scanner drives "
        "it.",
        inventory_states.OPERATION_ALLOWED,  # type: ignore[dict-item]
    ),
}

# Beside the five that every problem has; a test compares with the schema.
PROBLEM_MEMBERS = {
    "reservation_id": "`ALREADY_RESERVED`: the one you hold; `RESERVATION_ENDED`: the one that is "
    "over",
    "order_id": "`ALREADY_RESERVED`: the id that its order has or will have",
    "status_url": "`ALREADY_RESERVED`, `RESERVATION_ENDED`: path of the reservation's status",
    "events_url": "`ALREADY_RESERVED`: path of its stream of changes",
    "reason": "`RESERVATION_ENDED`: why it ended; `BAD_REQUEST` of a payment provider's webhook: "
    "why it was refused",
    "order_status": "`ORDER_STATE_CONFLICT`: the order's present state",
    "errors": "`BAD_REQUEST`: what is wrong, by field; absent when the body could not be read",
}


def chart(allowed: Mapping[StrEnum, frozenset[StrEnum]]) -> str:
    """Draw one machine as a Mermaid state chart; states without a way out end the chart."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {next(iter(allowed)).value}"]
    for source, targets in allowed.items():
        lines += [f"    {source.value} --> {target.value}" for target in sorted(targets)]
        if not targets:
            lines.append(f"    {source.value} --> [*]")
    return "\n".join([*lines, "```"])


def states_page() -> str:
    """Return the text of docs/states.md."""
    parts = [
        "# State charts\n\nGenerated from the code by `python -m docs.generate`; a test compares."
    ]
    for name, (text, allowed) in MACHINES.items():
        parts.append(f"## {name}\n{text}\n\n{chart(allowed)}")
    return "\n\n".join(parts) + "\n"


def problems_page() -> str:
    """Return the text of docs/problems.md."""
    rows = [
        f"| `{code}` | {kind.status} | {kind.retry_after_s or ''} | {kind.detail} |"
        for code, kind in PROBLEMS.items()
    ]
    head = (
        "# Problems\n\nGenerated from the code by `python -m docs.generate`. Every refusal is "
        "`application/problem+json` (RFC 9457); clients decide by `code`.\n\n"
        "| code | HTTP | Retry-After, s | what it says |\n|---|---|---|---|\n"
    )
    members = [f"| `{name}` | {text} |" for name, text in PROBLEM_MEMBERS.items()]
    own = (
        "\n## Members\n`type`, `title`, `status`, `code` and `detail` are always there; `title` "
        "and `detail` are for people and may change. Some problems have more:\n\n"
        "| member | of which code, and what it says |\n|---|---|\n"
    )
    return head + "\n".join(rows) + "\n" + own + "\n".join(members) + "\n"


PAGES = {"states.md": states_page, "problems.md": problems_page, "metrics.md": metrics_page}


def main() -> int:
    """Write the pages, or with --check tell which are out of date."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill.settings")
    django.setup()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="exit 1 on a difference, write nothing"
    )
    check = parser.parse_args().check
    stale = []
    for name, page in PAGES.items():
        path, text = HERE / name, page()
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if not check:
                path.write_text(text)
    sys.stdout.write(f"{'out of date' if check else 'written'}: {', '.join(stale) or 'nothing'}\n")
    return int(check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
