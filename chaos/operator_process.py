"""The operators' own process: reads one step a line, runs the product's service, answers a line.

Apart from the search, so that a fault point inside a service takes down this process alone.
"""

import faulthandler
import json
import os
import sys
from collections.abc import Callable
from typing import Any, Final

_answers = sys.stdout
sys.stdout = sys.stderr  # log lines must not look like answers

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill.settings")

import django  # noqa: E402

django.setup()

from django.contrib.auth import get_user_model  # noqa: E402
from django.core.exceptions import PermissionDenied, ValidationError  # noqa: E402
from django.db import Error as DatabaseFailure  # noqa: E402
from django.db import connection  # noqa: E402

from chaos import desk_work  # noqa: E402
from chaos.operator_client import HANGS_S  # noqa: E402
from inventory import operations  # noqa: E402
from inventory.errors import GateUnavailable, OperationRefused  # noqa: E402
from messaging.errors import TransientError  # noqa: E402
from orders.cancel_order import cancel_by_operator  # noqa: E402
from orders.errors import OrderNotFound, OrderStateConflict  # noqa: E402
from orders.payments.refunds import refund_order  # noqa: E402
from seckill.demo.poison import buy_poisoned, cut_off, newer_schema  # noqa: E402
from seckill.demo.rig import ADMIN  # noqa: E402
from seckill.demo.sale import Sale  # noqa: E402

_REASON: Final = "fault search"
_REFUSALS: Final = (
    *(OperationRefused, OrderNotFound, OrderStateConflict, PermissionDenied, ValidationError),
    *(GateUnavailable, DatabaseFailure, TransientError),
)
_ORDER: Final = """
SELECT order_id FROM orders_order WHERE activity_id = %s AND status = %s ORDER BY order_id LIMIT 1
"""


def _order(activity_id: int, status: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(_ORDER, (activity_id, status))
        row = cursor.fetchone()
    if row is None:
        raise OrderNotFound(f"no order is {status}")
    return str(row[0])


def _user() -> Any:
    return get_user_model().objects.get(username=ADMIN)


def _top_up(activity_id: int, sku_id: int, units: int, operation_id: str) -> object:
    return operations.request_top_up(
        activity_id=activity_id,
        sku_id=sku_id,
        units=units,
        operation_id=operation_id,
        reason=_REASON,
    )


def _cut(activity_id: int, sku_id: int, units: int, operation_id: str) -> object:
    return operations.request_cut(
        activity_id=activity_id,
        sku_id=sku_id,
        units=units,
        operation_id=operation_id,
        reason=_REASON,
    )


def _edit(activity_id: int, sku_id: int, units: int, operation_id: str) -> object:
    return operations.request_edit(
        activity_id=activity_id,
        wish=operations.EditWish(max_open=50 + units, limit_per_user={sku_id: 1 + units % 3}),
        operation_id=operation_id,
        reason=_REASON,
    )


def _refund(activity_id: int, sku_id: int, units: int, operation_id: str) -> object:
    return refund_order(
        order_id=_order(activity_id, "PAID"), user=_user(), reason=_REASON, restock=units % 2 == 0
    )


def _cancel(activity_id: int, sku_id: int, units: int, operation_id: str) -> object:
    return cancel_by_operator(
        order_id=_order(activity_id, "CREATED"),
        user=_user(),
        reason=_REASON,
        restock=units % 2 == 0,
    )


def _status(request: Callable[..., str]) -> Callable[[int, int, int, str], object]:
    def run(activity_id: int, sku_id: int, units: int, operation_id: str) -> object:
        return request(activity_id=activity_id, operation_id=operation_id, reason=_REASON)

    return run


def _poison(spoil: Callable[[bytes], bytes]) -> Callable[[int, int, int, str], object]:
    """Buy at the gate in the name of admission, and send what nobody can read."""

    def run(activity_id: int, sku_id: int, units: int, operation_id: str) -> object:
        sale = Sale(activity_id=activity_id, sku_id=sku_id, stock=0, validity_s=0)
        try:
            (made,) = buy_poisoned(sale, [operation_id], spoil=spoil)
        except RuntimeError as error:  # sold out, or the broker is away
            raise OperationRefused(str(error)) from error
        return made.reservation_id

    return run


def _desk(activity_id: int, sku_id: int, units: int, operation_id: str) -> object:
    return desk_work.work(replay=operation_id == "replay")


VERBS: Final[dict[str, Callable[[int, int, int, str], object]]] = {
    "top_up": _top_up,
    "cut": _cut,
    "edit": _edit,
    "refund": _refund,
    "cancel": _cancel,
    "pause": _status(operations.request_pause),
    "resume": _status(operations.request_resume),
    "stop": _status(operations.request_stop),
    "open": _status(operations.request_open),
    "close": _status(operations.request_close),
    "newer_schema": _poison(newer_schema),
    "cut_off": _poison(cut_off),
    "desk": _desk,
}


def main() -> None:
    """Answer until the other end closes."""
    for line in sys.stdin:
        wish = json.loads(line)
        faulthandler.dump_traceback_later(HANGS_S - 5)
        try:
            verb, activity, sku, units, operation = wish
            done = VERBS[verb](activity, sku, units, operation)
            answer = f"ok {done}"
        except _REFUSALS as error:
            answer = f"refused {type(error).__name__}: {error}"
        finally:
            faulthandler.cancel_dump_traceback_later()
            connection.close()
        _answers.write(" ".join(answer.split())[:300] + "\n")
        _answers.flush()


if __name__ == "__main__":
    main()
