"""Which change of an operator a Redis that came back as an older copy has forgotten.

A change is DONE in PostgreSQL only after the gate has answered OK, and the gate remembers each: the
newest status and the newest edit by their versions, which only grow, top-ups and cuts by name. So a
gate without one of them is an older copy, however young.
Source: docs/protocol.md, "The moving mark" (rule `asked-operations`).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from inventory import verbs
from inventory.gate import gate
from inventory.models import GateOperation, RebuildRun
from inventory.states import OperationKind, OperationStatus

_STATUS: Final = frozenset(
    {
        *(OperationKind.OPEN, OperationKind.RESUME),
        *(OperationKind.PAUSE, OperationKind.CLOSE, OperationKind.STOP),
    }
)
_UNITS: Final = frozenset({OperationKind.TOP_UP, OperationKind.CUT})
_LOOKED_AT: Final = [*_STATUS, *_UNITS, OperationKind.EDIT]


def forgotten_operation(*, activity_id: int, epochs: dict[int, int], since: datetime) -> str | None:
    """Return the id of a change that the gate once answered OK and does not know; None without one.

    A rebuild writes the gate anew, from PostgreSQL: what was asked for before it ended is left out.

    Args:
        activity_id: an opened sale; its gates are there, and no loss is noted.
        epochs: its SKUs, each with its epoch: units moved in another one are left out.
        since: changes done before are left out.

    Raises:
        GateUnavailable: Redis cannot be reached.

    Cost: one statement; with changes to look at two more, and a read for each SKU.
    """
    done = list(
        GateOperation.objects.filter(
            activity_id=activity_id,
            status=OperationStatus.DONE,
            kind__in=_LOOKED_AT,
            done_at__gte=since,
            note="",  # else the gate was not there yet
        ).order_by("version")
    )
    if not done:
        return None
    rebuilt = list(
        RebuildRun.objects.filter(activity_id=activity_id).values_list("ended_at", flat=True)
    )
    if None in rebuilt:
        return None
    last = max((ended for ended in rebuilt if ended is not None), default=None)
    newest: dict[bool, GateOperation] = {}  # is it an edit → the newest
    moved: dict[int, list[str]] = defaultdict(list)
    for operation in done:
        if last is not None and operation.requested_at <= last:
            continue
        if operation.kind not in _UNITS:
            newest[operation.kind == OperationKind.EDIT] = operation
        elif operation.sku_id is not None and epochs.get(operation.sku_id) == operation.epoch:
            moved[operation.sku_id].append(operation.pk)
    if not (newest or moved):
        return None
    forgotten = _first_forgotten(activity_id, epochs, newest, moved)
    # Asked last: a rebuild that began meanwhile writes the gate anew.
    if RebuildRun.objects.filter(activity_id=activity_id).count() != len(rebuilt):
        return None
    return forgotten


def _first_forgotten(
    activity_id: int,
    sku_ids: Iterable[int],
    newest: Mapping[bool, GateOperation],
    moved: Mapping[int, list[str]],
) -> str | None:
    for sku_id in sku_ids:
        moves = moved.get(sku_id, [])
        status, edit, known = gate().run(
            verbs.applied_operations(activity_id=activity_id, sku_id=sku_id, operation_ids=moves)
        )
        for is_edit, version in ((False, status), (True, edit)):
            if is_edit in newest and version < newest[is_edit].version:
                return newest[is_edit].pk
        for operation_id, is_known in zip(moves, known, strict=True):
            if not is_known:
                return operation_id
    return None
