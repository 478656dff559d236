"""System checks on the relations between the settings (`manage.py check`, and at every start)."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.utils.module_loading import import_string

import faultpoint
from orders.notifications import SENDING_S
from orders.payments.states import LEASE_S


@register("seckill")
def check_relations(**kwargs: Any) -> list[CheckMessage]:
    """Numbers that only work together: each error names both and what to change."""
    s = settings
    rules: list[tuple[bool, str, str]] = [
        (
            s.SECKILL_SEND_BUDGET_MS + s.SECKILL_GATE_DEADLINE_MS < s.SECKILL_FIRST_RETRY_MS,
            "SECKILL_FIRST_RETRY_MS must exceed gate deadline + send budget: admission's lease",
            "E001",
        ),
        (
            s.SECKILL_SCAN_LEASE_MS > s.SECKILL_PUBLISH_TIMEOUT_MS,
            "SECKILL_SCAN_LEASE_MS must exceed SECKILL_PUBLISH_TIMEOUT_MS: leases outlive sends",
            "E002",
        ),
        (
            s.SECKILL_OUTBOX_LEASE_S * 1000 > 2 * s.SECKILL_PUBLISH_TIMEOUT_MS,
            "SECKILL_OUTBOX_LEASE_S must exceed twice SECKILL_PUBLISH_TIMEOUT_MS",
            "E003",
        ),
        (
            s.SECKILL_INVISIBLE_S > s.SECKILL_MIN_INVISIBLE_LEFT_S
            and s.SECKILL_MIN_INVISIBLE_LEFT_S * 1000 > s.SECKILL_STATEMENT_TIMEOUT_MS,
            "SECKILL_INVISIBLE_S > SECKILL_MIN_INVISIBLE_LEFT_S > SECKILL_STATEMENT_TIMEOUT_MS "
            "must hold: a message is not begun that could come back before its commit",
            "E004",
        ),
        (
            s.SECKILL_LOCK_TIMEOUT_MS < s.SECKILL_STATEMENT_TIMEOUT_MS,
            "SECKILL_LOCK_TIMEOUT_MS must be below SECKILL_STATEMENT_TIMEOUT_MS",
            "E005",
        ),
        (
            s.SECKILL_INBOX_DAYS > s.SECKILL_OUTBOX_DAYS,
            "SECKILL_INBOX_DAYS must exceed SECKILL_OUTBOX_DAYS: replays must hit the inbox",
            "E006",
        ),
        (
            s.SECKILL_WEB_ROLE in {"all", "admission", "site"},
            "SECKILL_WEB_ROLE is one of all, admission, site",
            "E007",
        ),
        (
            s.SECKILL_GOVERNOR in {"off", "on"},
            "SECKILL_GOVERNOR is off or on",
            "E008",
        ),
        (
            1 <= s.SECKILL_GATHER_MAX <= 128 and s.SECKILL_BATCH_MAX >= 1,
            "SECKILL_GATHER_MAX is 1 to 128, SECKILL_BATCH_MAX at least 1",
            "E009",
        ),
        (
            s.SECKILL_SIGTERM_GRACE_S > s.SECKILL_STATEMENT_TIMEOUT_MS / 1000,
            "SECKILL_SIGTERM_GRACE_S must exceed SECKILL_STATEMENT_TIMEOUT_MS: "
            "what is in flight finishes",
            "E010",
        ),
        (
            not faultpoint.armed() or s.SECKILL_FAULTPOINTS_ALLOWED,
            "SECKILL_FAULTPOINTS is set: this process would kill itself; unset it",
            "E011",
        ),
        (
            2 * s.SECKILL_PAYMENT_DEADLINE_MS < 1_000 * LEASE_S,
            "SECKILL_PAYMENT_DEADLINE_MS must be below 5 s: a lease outlives a query and a send",
            "E012",
        ),
        (
            not s.PAYMENT_PROVIDER_URL or bool(s.SECKILL_WEBHOOK_SECRET and s.PAYMENT_PROVIDER_KEY),
            "PAYMENT_PROVIDER_URL needs PAYMENT_PROVIDER_KEY and SECKILL_WEBHOOK_SECRET",
            "E013",
        ),
        (
            not s.SECKILL_CAPTCHA or _is_callable(s.SECKILL_CAPTCHA),
            "SECKILL_CAPTCHA must be the dotted path of a callable",
            "E014",
        ),
        (
            all(_is_callable(path) for path in s.SECKILL_PAYMENT_PROVIDERS.values()),
            "SECKILL_PAYMENT_PROVIDERS is name=dotted.path.of.a.function, comma-separated",
            "E018",
        ),
        (
            s.EMAIL_TIMEOUT < SENDING_S,
            f"EMAIL_TIMEOUT must be below {SENDING_S} s: an older SENDING has nobody behind it",
            "E015",
        ),
        (
            s.SECKILL_TRACES in {"off", "otlp"} and 0 <= s.SECKILL_TRACE_RATIO <= 1,
            "SECKILL_TRACES is off or otlp, SECKILL_TRACE_RATIO from 0 to 1",
            "E020",
        ),
        (
            s.SECKILL_GOVERNOR_TTL_MS >= 2_500,
            "SECKILL_GOVERNOR_TTL_MS must be at least 2500: the governor speaks once a second",
            "E016",
        ),
        (
            1 <= s.SECKILL_CONSUMER_WORKERS <= s.SECKILL_CONSUMER_WORKERS_MAX
            and s.SECKILL_SAFE_TRANSACTIONS >= 1,
            "SECKILL_CONSUMER_WORKERS is 1 to SECKILL_CONSUMER_WORKERS_MAX, "
            "SECKILL_SAFE_TRANSACTIONS at least 1",
            "E017",
        ),
    ]
    return [Error(text, id=f"seckill.{code}") for holds, text, code in rules if not holds]


@register("seckill", deploy=True)
def check_celery(**kwargs: Any) -> list[CheckMessage]:
    """Without its broker the schedule does nothing, and says so only in Celery's own log."""
    if settings.CELERY_BROKER_URL:
        return []
    text = "CELERY_BROKER_URL is empty: no partitions are made ahead, nothing is reconciled"
    return [Error(text, id="seckill.E021")]


def _is_callable(path: str) -> bool:
    try:
        return callable(import_string(path))
    except ImportError:
        return False
