"""Reads of the stock ledger for other apps."""

from dataclasses import dataclass
from datetime import datetime

from inventory.models import StockLedger


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerRecord:
    """One move of final stock."""

    kind: str
    sku_id: int
    delta: int
    units: int
    created_at: datetime


def ledger_of(source_id: str) -> list[LedgerRecord]:
    """Return the moves that an order or operation caused, in order. One statement."""
    return [
        LedgerRecord(
            kind=row.kind,
            sku_id=row.sku_id,
            delta=row.delta,
            units=row.units,
            created_at=row.created_at,
        )
        for row in StockLedger.objects.filter(source_id=source_id).order_by("id")
    ]
