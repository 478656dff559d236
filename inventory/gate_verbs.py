"""The gate's verbs on the gates themselves: warm-up, operators' changes, rebuild (no I/O).

Each covers all SKUs of a sale in one script, so that a sale is never half open.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from inventory import keys
from inventory.call import Call
from inventory.contracts import (
    AdjustCode,
    AdjustReply,
    AdoptCode,
    GateConfig,
    GateLoad,
    GateRebuild,
    GateWriteCode,
)
from inventory.states import GateStatus


def _gates(activity_id: int, sku_ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(keys.gate(activity_id, sku_id) for sku_id in sku_ids)


def _config(config: GateConfig) -> tuple[int, ...]:
    return (
        config.starts_ms,
        config.ends_ms,
        config.validity_ms,
        config.limit_per_user,
        config.max_open,
        config.max_pending,
    )


def _write_code(raw: Any) -> GateWriteCode:
    return GateWriteCode(raw)


def load_gate(*, activity_id: int, gates: Sequence[GateLoad], version: int) -> Call[GateWriteCode]:
    """Load the stock of a sale that was never opened, CLOSED.

    Args:
        activity_id: the sale.
        gates: units, epoch and limits of each SKU; a newer epoch replaces an older load.
        version: the activity's version that the limits belong to.
    """
    return Call(
        script="load_gate",
        keys=(
            keys.mark(activity_id),
            *(
                key
                for gate in gates
                for key in (
                    keys.gate(activity_id, gate.sku_id),
                    keys.stock(activity_id, gate.sku_id),
                    keys.ops(activity_id, gate.sku_id),
                )
            ),
        ),
        args=(
            len(gates),
            version,
            *(part for gate in gates for part in (gate.units, gate.epoch, *_config(gate.config))),
        ),
        parse=_write_code,
    )


def open_gate(
    *, activity_id: int, epochs: Mapping[int, int], version: int, first: bool
) -> Call[GateWriteCode]:
    """Open (or resume) all gates of a sale; the only verb that clears `stopped`.

    Args:
        activity_id: the sale.
        epochs: SKU → epoch that PostgreSQL holds; a gate of another epoch is not opened.
        version: the activity's version that the request made; after a newer change it is STALE.
        first: the sale was never opened before (only then may a gate be fresh from warm-up).
    """
    return Call(
        script="open_gate",
        keys=_gates(activity_id, list(epochs)),
        args=(version, 1 if first else 0, *epochs.values()),
        parse=_write_code,
    )


def close_gate(
    *, activity_id: int, sku_ids: Sequence[int], version: int, status: GateStatus
) -> Call[GateWriteCode]:
    """Stop, close or pause all gates of a sale at once: sets `stopped` in any status.

    Args:
        activity_id: the sale.
        sku_ids: all its SKUs.
        version: the activity's version that the request made; after a newer open it is STALE.
        status: PAUSED or CLOSED; REBUILDING stays as it is.
    """
    return Call(
        script="close_gate",
        keys=_gates(activity_id, sku_ids),
        args=(version, status.value),
        parse=_write_code,
    )


def edit_gate(
    *, activity_id: int, configs: Mapping[int, GateConfig], version: int
) -> Call[GateWriteCode]:
    """Change window and limits of all gates of a sale; reservations in flight keep theirs.

    Args:
        activity_id: the sale.
        configs: SKU → all its values.
        version: the activity's version that the edit made; an older one is STALE.
    """
    return Call(
        script="edit_gate",
        keys=_gates(activity_id, list(configs)),
        args=(version, *(part for config in configs.values() for part in _config(config))),
        parse=_write_code,
    )


def adjust_stock(
    *, activity_id: int, sku_id: int, operation_id: str, units: int, epoch: int
) -> Call[AdjustReply]:
    """Give a top-up's units to a gate or take a cut's units from it, once in an epoch.

    Args:
        activity_id: the sale.
        sku_id: whose gate.
        operation_id: the operation; repeated, it answers what it did.
        units: + to give, - to take; a cut takes what is there.
        epoch: the SKU's epoch in PostgreSQL when the operation was picked.
    """
    return Call(
        script="adjust_stock",
        keys=(
            keys.gate(activity_id, sku_id),
            keys.stock(activity_id, sku_id),
            keys.ops(activity_id, sku_id),
        ),
        args=(operation_id, units, epoch),
        parse=lambda raw: AdjustReply(code=AdjustCode(raw[0]), units=raw[1]),
    )


def adopt(
    *,
    activity_id: int,
    sku_id: int,
    order_id: str,
    user_id: str,
    reservation_id: str,
    quantity: int,
    epoch: int,
) -> Call[AdoptCode]:
    """Take the units of an order that the gate does not know of, and let its buyer hold them.

    Args:
        activity_id: the sale.
        sku_id: whose gate.
        order_id: the live order, locked in PostgreSQL while this runs.
        user_id: its buyer.
        reservation_id: its reservation.
        quantity: its units.
        epoch: the SKU's epoch in PostgreSQL.
    """
    return Call(
        script="adopt",
        keys=(
            keys.gate(activity_id, sku_id),
            keys.stock(activity_id, sku_id),
            keys.buyers(activity_id, sku_id),
            keys.ops(activity_id, sku_id),
        ),
        args=(order_id, user_id, reservation_id, quantity, epoch),
        parse=AdoptCode,
    )


def close_for_rebuild(
    *, activity_id: int, sku_ids: Sequence[int], run: int, loss_noted: bool
) -> Call[GateWriteCode]:
    """Close all gates and leave the run's number; missing gates only when the loss was noted.

    Args:
        activity_id: the sale.
        sku_ids: all its SKUs.
        run: number of the rebuild run, from PostgreSQL.
        loss_noted: the run began with `loss_noted_at` set.
    """
    return Call(
        script="close_for_rebuild",
        keys=_gates(activity_id, sku_ids),
        args=(run, 1 if loss_noted else 0),
        parse=_write_code,
    )


def begin_rebuild(*, activity_id: int, sku_ids: Sequence[int], run: int) -> Call[GateWriteCode]:
    """Go from CLOSED to REBUILDING, by the run whose number the gates hold."""
    return Call(
        script="begin_rebuild",
        keys=_gates(activity_id, sku_ids),
        args=(run,),
        parse=_write_code,
    )


def finish_rebuild(
    *,
    activity_id: int,
    gates: Sequence[GateRebuild],
    run: int,
    mark: int | None,
    status: GateStatus,
    version: int,
) -> Call[GateWriteCode]:
    """Write what the rebuild's transaction found and leave REBUILDING.

    Args:
        activity_id: the sale.
        gates: stock, epoch, limits and buyers of every SKU.
        run: number of this run; a newer one makes it STALE.
        mark: the mark to write, None unless the run began with the loss noted.
        status: what PostgreSQL holds; `stopped` at the gate overrides OPEN.
        version: the activity's version that the limits belong to.
    """
    return Call(
        script="finish_rebuild",
        keys=(
            keys.mark(activity_id),
            *(
                key
                for gate in gates
                for key in (
                    keys.gate(activity_id, gate.sku_id),
                    keys.stock(activity_id, gate.sku_id),
                    keys.buyers(activity_id, gate.sku_id),
                    keys.ops(activity_id, gate.sku_id),
                )
            ),
        ),
        args=(
            len(gates),
            run,
            "" if mark is None else mark,
            status.value,
            version,
            *(
                part
                for gate in gates
                for part in (gate.units, gate.epoch, *_config(gate.config), len(gate.buyers))
            ),
            *(part for gate in gates for item in gate.buyers.items() for part in item),
        ),
        parse=_write_code,
    )


def move_mark(*, activity_id: int, number: int) -> Call[int | None]:
    """Move the mark from `number` - 1 to `number`; answers what it was before, None when gone."""
    return Call(
        script="move_mark",
        keys=(keys.mark(activity_id),),
        args=(number,),
        parse=lambda raw: None if raw < 0 else int(raw),
    )


def delete_gate(*, activity_id: int, sku_ids: Sequence[int]) -> Call[int]:
    """Delete the gate of a settled sale; reservations and request keys expire by themselves.

    Returns the number of keys deleted. A verb that comes later finds nothing and makes nothing.
    """
    names = [keys.mark(activity_id), keys.mq_pending(activity_id)]
    names.append(keys.open_reservations(activity_id))
    for sku_id in sku_ids:
        names += [
            keys.gate(activity_id, sku_id),
            keys.stock(activity_id, sku_id),
            keys.buyers(activity_id, sku_id),
            keys.ops(activity_id, sku_id),
        ]
    return Call(commands=(("DEL", *names),), parse=lambda raw: int(raw[0]))
