"""What admission must know about who may try: read as one snapshot, compared by a cheap mark."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_FLOOR, Decimal
from typing import Final

from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now

from inventory.models import AdmissionOptions, DenyEntry, Sku, Stock
from inventory.states import ActivityStatus

EVERY_SALE: Final = 0  # stands for the activity of a global entry

# Changes whenever an entry or an option does: entries are never edited, options are few.
_MARK: Final = """
SELECT (SELECT count(*) || '.' || coalesce(max(id), 0) FROM inventory_denyentry) || ' ' || coalesce(
    (SELECT string_agg(concat_ws(',', activity_id, token_required, token_lifetime_s), ' '
        ORDER BY activity_id) FROM inventory_admissionoptions), '')
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class RulesSnapshot:
    """Sales that need a token, and denied buyers with the end of their denial (None: for ever)."""

    mark: str
    token_sales: frozenset[int]
    denied: Mapping[int, Mapping[str, datetime | None]]  # activity (0: every sale) → user → end


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenTerms:
    """What a sale asks of a token for one SKU; `limit` valid ones at a time."""

    required: bool
    captcha_required: bool
    lifetime_s: int
    limit: int


def rules_mark() -> str:
    """Return a text that changes with the rules. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(_MARK)
        return str(cursor.fetchone()[0])


def rules_snapshot() -> RulesSnapshot:
    """Read all rules. Cost: three statements, all denied buyers."""
    mark = rules_mark()
    denied: dict[int, dict[str, datetime | None]] = {}
    entries = DenyEntry.objects.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=Now()))
    for activity_id, user_id, end in entries.values_list("activity_id", "user_id", "expires_at"):
        denied.setdefault(activity_id or EVERY_SALE, {})[user_id] = end
    sales = AdmissionOptions.objects.filter(token_required=True).exclude(
        activity__status=ActivityStatus.SETTLED
    )
    return RulesSnapshot(
        mark=mark,
        token_sales=frozenset(sales.values_list("activity_id", flat=True)),
        denied=denied,
    )


def is_denied(*, activity_id: int, user_id: str) -> bool:
    """Tell whether a buyer may reserve nothing in a sale now. One statement."""
    return (
        DenyEntry.objects.filter(user_id=user_id)
        .filter(Q(activity_id=activity_id) | Q(activity__isnull=True))
        .filter(Q(expires_at__isnull=True) | Q(expires_at__gt=Now()))
        .exists()
    )


def token_terms(*, activity_id: int, sku_id: int) -> TokenTerms | None:
    """Return the terms of tokens for a SKU; None when the sale has no such SKU, or is a draft.

    The limit is `tokens_per_unit` times the units that the sale has had so far (initial + top-ups -
    cuts), rounded down, at least 1. Cost: three statements.
    """
    sku = Sku.objects.filter(pk=sku_id, activity_id=activity_id).select_related("activity").first()
    if sku is None or sku.activity.status == ActivityStatus.DRAFT:
        return None
    options = AdmissionOptions.objects.filter(pk=activity_id).first()
    if options is None or not options.token_required:
        return TokenTerms(required=False, captcha_required=False, lifetime_s=0, limit=0)
    stock = Stock.objects.filter(pk=sku_id).first()
    units = stock.initial + stock.topped_up - stock.cut if stock else sku.initial_units
    limit = int((options.tokens_per_unit * Decimal(units)).to_integral_value(ROUND_FLOOR))
    return TokenTerms(
        required=True,
        captcha_required=options.captcha_required,
        lifetime_s=options.token_lifetime_s,
        limit=max(1, limit),
    )
