"""Turns: what is done for many sales is done for each, whatever becomes of the others."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

import structlog

from inventory import keys
from inventory.errors import GateUnavailable
from inventory.gate import gate

log = structlog.get_logger(__name__)

T = TypeVar("T")

# One sale whose calls fail is no sign that its server is away; so many in a row are. Each of them
# waits for the client's deadline, and a round has to end before the watchdog bites.
FAILED_IN_A_ROW: Final = 3


def take_turns(items: Iterable[T], act: Callable[[T], int], *, sale_of: Callable[[T], int]) -> int:
    """Act on each item; one that fails takes no other's turn.

    Args:
        items: sales, or what belongs to one.
        act: does the work and returns how much it did.
        sale_of: the item's sale. Once its gate has failed, the rest of the sale waits for the next
            round; so does the rest of a Redis server that is away.

    Returns:
        How much was done in all.

    Raises:
        Exception: the first failure, after everything else had its turn.
    """
    done = 0
    first: Exception | None = None
    failed: defaultdict[str, set[int]] = defaultdict(set)  # server → sales since one went well
    left: set[int] = set()
    for item in items:
        sale = sale_of(item)
        try:
            server = gate().server_of(keys.mark(sale))
            if sale in left or len(failed[server]) >= FAILED_IN_A_ROW:
                continue
            try:
                done += act(item)
            except GateUnavailable:
                failed[server].add(sale)
                left.add(sale)
                raise
            failed[server].clear()
        except Exception as error:
            log.warning("turn_failed", activity_id=sale, error=repr(error))
            first = first or error
    if first is not None:
        raise first
    return done


def each_sale(work: Mapping[int, T], act: Callable[[int, T], object]) -> set[int]:
    """Act on the work of each sale; in a cluster, a server that is away stops its own sales only.

    Args:
        work: by sale.
        act: called with a sale and its work.

    Returns:
        The sales that were left out: their server is away, another one answers.

    Raises:
        GateUnavailable: no server answers, or the one server does not.
    """
    left: set[int] = set()
    away: set[str] = set()
    for sale, its_work in sorted(work.items()):
        server = None  # not known: the cluster tells nobody who holds this sale
        try:
            server = gate().server_of(keys.mark(sale))
            if server in away:
                left.add(sale)
            else:
                act(sale, its_work)
        except GateUnavailable as error:
            if not set(gate().answering()) - {server}:
                raise
            log.warning("sale_left_out", server=server, activity_id=sale, error=str(error))
            left.add(sale)
            if server is not None:
                away.add(server)
    return left
