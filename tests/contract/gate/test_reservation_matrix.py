"""A reservation at the gate, from each state to each: what its chart forbids changes nothing."""

import pytest

from inventory.states import GATE_RESERVATION_ALLOWED, GateReservationStatus
from tests.fixtures.gate import wish

RESERVED, CONFIRMED, RELEASED = GateReservationStatus


@pytest.mark.parametrize("target", list(GateReservationStatus))
@pytest.mark.parametrize("source", list(GateReservationStatus))
def test_each_move(new_sale, source, target) -> None:
    sale = new_sale(3)
    request = wish("ann")
    (reply,) = sale.reserve(request)
    moves = {
        RESERVED: lambda: sale.reserve(request),
        CONFIRMED: lambda: sale.confirm(reply.reservation),
        RELEASED: lambda: sale.release(reply.reservation),
    }
    if source is not RESERVED:
        moves[source]()
    allowed = target in GATE_RESERVATION_ALLOWED[source]
    before = sale.dump()

    moves[target]()

    now = target if allowed else source
    stored = sale.stored(request.reservation_id)
    assert stored["status"] == now.value
    freed = now is RELEASED
    assert (sale.stock(), len(sale.holders())) == ((3, 0) if freed else (2, 1))
    if not allowed and target is not RESERVED:  # asking again sets `observed`, no more
        assert sale.dump() == before
