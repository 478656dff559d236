"""The hot verb: `reserve`, a batch of buyers of one activity (no I/O; `gate.py` runs it)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inventory import keys
from inventory.call import Call
from inventory.contracts import Reservation, ReserveCode, ReserveReply, ReserveRequest
from inventory.reads import RESERVATION_FIELDS, reservation_of

_UNKNOWN_HASH: Final = 0  # the script needs the hash of the reservation it named
_NOT_SET: Final = (None,) * len(RESERVATION_FIELDS)


def reserve(
    *, activity_id: int, requests: Sequence[ReserveRequest], lease_owner: str, lease_ms: int
) -> Call[list[ReserveReply]]:
    """Reserve units for a batch of buyers; each request is answered apart, in its order.

    A reservation is born leased to the caller until its first retry. When the script names a
    reservation of an earlier batch, the runner calls it again, for these requests only, with that
    reservation's hash among its keys: repeated clicks cost a second round trip.

    Args:
        activity_id: the sale all requests belong to.
        requests: at most about a hundred; all ids drawn before and never changed after.
        lease_owner: name of the caller, the fence of `give_back`.
        lease_ms: lease of new reservations, also their first next_retry_at.

    Returns:
        A call whose answer has one reply a request. Cost: one script, about four commands in Redis
        for each accepted request.
    """
    return _reserve(
        activity_id=activity_id,
        requests=requests,
        lease_owner=lease_owner,
        lease_ms=lease_ms,
        positions=range(len(requests)),
        named=(),
        answered={},
    )


def _reserve(
    *,
    activity_id: int,
    requests: Sequence[ReserveRequest],
    lease_owner: str,
    lease_ms: int,
    positions: Sequence[int],
    named: Sequence[str],
    answered: Mapping[int, ReserveReply],
) -> Call[list[ReserveReply]]:
    """Ask for the requests at `positions`; `answered` holds the replies of the others."""
    batch = [requests[position] for position in positions]
    numbers: dict[int, int] = {}
    key_list = [keys.mq_pending(activity_id), keys.open_reservations(activity_id)]
    request_keys: list[str] = []
    args: list[str | int] = []
    for request in batch:
        sku_id = request.sku_id
        number = numbers.get(sku_id)
        if number is None:
            number = numbers[sku_id] = len(numbers) + 1
            key_list += (
                keys.gate(activity_id, sku_id),
                keys.stock(activity_id, sku_id),
                keys.buyers(activity_id, sku_id),
            )
        request_keys += (
            keys.request(activity_id, request.user_id, request.idempotency_key),
            keys.reservation(activity_id, request.reservation_id),
        )
        args += (
            number,
            request.user_id,
            request.quantity,
            request.reservation_id,
            request.request_id,
            request.order_id,
            request.message_id,
            request.traceparent,
            request.fingerprint,
        )

    def replies(raw: Any) -> dict[int, ReserveReply]:
        found = _parse(activity_id=activity_id, batch=batch, numbers=numbers, raw=raw)
        return {**answered, **{positions[i]: reply for i, reply in found.items()}}

    def follow_up(raw: Any) -> Call[list[ReserveReply]] | None:
        unknown = [i for i, code in enumerate(raw[2][::3]) if code == _UNKNOWN_HASH]
        if not unknown:
            return None
        wanted = {detail[0] - 1: detail[1] for detail in raw[3]}
        return _reserve(
            activity_id=activity_id,
            requests=requests,
            lease_owner=lease_owner,
            lease_ms=lease_ms,
            positions=[positions[i] for i in unknown],
            named=tuple(dict.fromkeys(wanted[i] for i in unknown)),
            answered=replies(raw),
        )

    def parse(raw: Any) -> list[ReserveReply]:
        by_position = replies(raw)
        return [by_position[position] for position in range(len(requests))]

    return Call(
        script="reserve",
        keys=(*key_list, *request_keys, *(keys.reservation(activity_id, rid) for rid in named)),
        args=(
            len(numbers),
            len(batch),
            len(named),
            lease_owner,
            lease_ms,
            *numbers,
            *args,
            *named,
        ),
        parse=parse,
        follow_up=follow_up,
    )


def _parse(
    *, activity_id: int, batch: Sequence[ReserveRequest], numbers: Mapping[int, int], raw: Any
) -> dict[int, ReserveReply]:
    """Read the script's answer: replies by place in the batch, without the unknown ones."""
    now, heads, answers, details = raw
    stored = {detail[0] - 1: detail for detail in details}
    made: dict[int, Reservation] = {}
    replies: dict[int, ReserveReply] = {}
    for i, request in enumerate(batch):
        code, stock_left, in_batch = answers[3 * i : 3 * i + 3]
        if code == _UNKNOWN_HASH:
            continue
        number = numbers[request.sku_id]
        version, validity_ms = heads[2 * number - 2 : 2 * number]
        reservation: Reservation | None = None
        if code == ReserveCode.RESERVED:
            reservation = made[i] = Reservation(
                activity_id=activity_id,
                sku_id=request.sku_id,
                reservation_id=request.reservation_id,
                request_id=request.request_id,
                order_id=request.order_id,
                message_id=request.message_id,
                user_id=request.user_id,
                quantity=request.quantity,
                status="RESERVED",
                mq_status="MQ_PENDING",
                created_at_ms=now,
                valid_until_ms=now + validity_ms,
                traceparent=request.traceparent,
            )
        elif in_batch:
            reservation = made[in_batch - 1]
        elif i in stored:
            _, reservation_id, *fields = stored[i]
            reservation = reservation_of(
                activity_id=activity_id, reservation_id=reservation_id, fields=fields or _NOT_SET
            )
        replies[i] = ReserveReply(
            code=ReserveCode(code),
            reservation=reservation,
            stock_left=stock_left,
            gate_version=version,
        )
    return replies
