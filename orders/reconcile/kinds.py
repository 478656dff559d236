"""The table of all classes of difference: who finds them, which rule they break, what repairs them.

Repairable is only what is proven by rows that are locked while it is repaired. Everything else is a
ticket: two stores tell different things, and a person must say which is right.
"""

from collections.abc import Mapping
from typing import Final

from orders.equalities import EQUALITIES
from orders.reconcile import database_side, gate_side, message_side, money_side
from orders.reconcile.difference import Find, Kind

FINDERS: Final[Mapping[str, Find]] = {
    "database": database_side.find,
    "gate": gate_side.find,
    "messages": message_side.find,
    "money": money_side.find,
}

_REPAIRABLE_EQUALITIES: Final = {
    "ended_without_release": database_side.make_due,
    "order_without_event": database_side.add_event,
    "order_without_trigger": database_side.add_trigger,
}

KINDS: Final[Mapping[str, Kind]] = {
    **{
        equality.kind: Kind(rule=equality.rule, repair=_REPAIRABLE_EQUALITIES.get(equality.kind))
        for equality in EQUALITIES
    },
    database_side.STOCK: Kind(
        rule="supply = available + live + withheld, and so says the ledger", seen_by="database"
    ),
    database_side.TICKET_WITH_OUTCOME: Kind(
        rule="an item is open only while its message has no outcome",
        repair=database_side.resolve_ticket,
    ),
    database_side.DUE_STUCK: Kind(
        rule="a release that is due reaches the gate", seen_by="database"
    ),
    database_side.OVERDUE_STUCK: Kind(
        rule="an unpaid order is cancelled after its expiry", seen_by="database"
    ),
    gate_side.ORDER_WITHOUT_HOLDER: Kind(
        rule="the buyer of a live order holds its units at the gate", repair=gate_side.adopt
    ),
    gate_side.HOLDER_OF_ENDED: Kind(
        rule="what is ended and released holds no units", repair=gate_side.release_again
    ),
    gate_side.CONFIRMED_WITHOUT_ORDER: Kind(rule="what is confirmed at the gate has an order"),
    gate_side.HOLDER_WITHOUT_ORDER: Kind(
        rule="who holds units has an order, an item, or waits for an outcome"
    ),
    gate_side.GATE_STOCK: Kind(rule="at rest the gate's stock is available without held units"),
    message_side.OUTBOX_STUCK: Kind(rule="an outbox row is sent, or given up", seen_by="messages"),
    message_side.UNCONSUMED: Kind(
        rule="what was published was dealt with", repair=message_side.replay
    ),
    message_side.UNCONSUMED_AGAIN: Kind(rule="what was published twice was dealt with"),
    money_side.MONEY: Kind(rule="money in = kept + refunded + refund due", seen_by="money"),
    money_side.PAYMENT_UNKNOWN: Kind(rule="an attempt to pay comes to an end", seen_by="money"),
    money_side.REFUND_UNKNOWN: Kind(rule="a refund comes to an end", seen_by="money"),
}
