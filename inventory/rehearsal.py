"""Deletes the rows of a rehearsal that inventory owns."""

from inventory.models import (
    Activity,
    GateMark,
    GateOperation,
    RebuildRun,
    Sku,
    Stock,
    StockLedger,
)


def delete_rehearsal(*, activity_id: int) -> dict[str, int]:
    """Delete a rehearsal's sale inside the caller's transaction, who has made sure that it is one.

    Returns:
        Rows deleted, by table.

    Raises:
        LookupError: it is not marked as a test: nothing is deleted (the last line of defence).

    Cost: a statement a table.
    """
    if not Activity.objects.select_for_update().filter(pk=activity_id, is_test=True).exists():
        raise LookupError(f"activity {activity_id} is no rehearsal")
    rows = {}
    for found in (
        StockLedger.objects.filter(activity_id=activity_id),
        GateOperation.objects.filter(activity_id=activity_id),
        RebuildRun.objects.filter(activity_id=activity_id),
        GateMark.objects.filter(activity_id=activity_id),
        Stock.objects.filter(activity_id=activity_id),
        Sku.objects.filter(activity_id=activity_id),
        Activity.objects.filter(pk=activity_id),  # with its admission options and denied buyers
    ):
        _, by_model = found.delete()
        rows[found.model._meta.db_table] = by_model.get(found.model._meta.label, 0)
    return rows
