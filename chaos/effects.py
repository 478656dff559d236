"""What the effect groups owe a sale's paid and refunded orders, against what they wrote."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from django.db import connection
from django.utils import timezone

from messaging.topology import CG_NOTIFY
from orders.contracts import ORDER_PAID, ORDER_REFUNDED, OrderEvent, order_event_decoder
from orders.effects.registry import effect_groups
from orders.events import ORDER_COLUMNS, OrderRecord, order_event, order_record
from orders.states import NotificationStatus, OrderStatus

_PAID: Final = f"""
SELECT {ORDER_COLUMNS} FROM orders_order o WHERE o.activity_id = %s
   AND o.status IN ('PAID', 'FULFILLING', 'FULFILLED', 'REFUNDING', 'REFUNDED')
"""  # noqa: S608 - constants
_WRITTEN: Final = """
SELECT consumer_group, source_type, source_id, rule_version, value, unit
  FROM orders_effect WHERE activity_id = %s
"""
_MAILS: Final = """
SELECT source_type, source_id, status FROM orders_notification WHERE activity_id = %s
"""
_ON_ITS_WAY: Final = frozenset({NotificationStatus.PENDING, NotificationStatus.SENDING})
_AT_REST: Final = frozenset({NotificationStatus.SENT, NotificationStatus.SKIPPED})


@dataclass(frozen=True, kw_only=True, slots=True)
class Effects:
    """A sale's effects: those that are missing yet, and those that are wrong for good."""

    missing: Counter[str] = field(default_factory=Counter)  # by group
    wrong: list[str] = field(default_factory=list)
    mails: dict[tuple[str, str], str] = field(default_factory=dict)  # event, order → status

    def motion(self) -> list[str]:
        """Return what is on its way, one line each."""
        waiting = sum(status in _ON_ITS_WAY for status in self.mails.values())
        found = [f"{n} effects of {group} missing" for group, n in sorted(self.missing.items())]
        return found + ([f"{waiting} mails not sent"] if waiting else [])

    def breaches(self, *, may_be_unknown: bool) -> list[str]:
        """Return what must not be at rest, one line each.

        Args:
            may_be_unknown: whether a fault struck that makes a sender lose a mail's fate.
        """
        fine = _AT_REST | ({NotificationStatus.UNKNOWN} if may_be_unknown else set())
        return self.wrong + [
            f"the mail {event} of {order_id} is {status}"
            for (event, order_id), status in sorted(self.mails.items())
            if status not in fine | _ON_ITS_WAY
        ]


def look(activity_id: int) -> Effects:
    """Compare a sale's effects with its orders: one in each group for each fact, and no other.

    What a fact is worth to a group is asked of the group: some make nothing of a refund.
    """
    with connection.cursor() as cursor:
        # The orders first: what is paid meanwhile is looked at the next time.
        cursor.execute(_PAID, [activity_id])
        orders = [order_record(row) for row in cursor.fetchall()]
        cursor.execute(_WRITTEN, [activity_id])
        written: dict[tuple[str, str, str, int], tuple[int, str]] = {
            (group, event, order_id, version): (value, unit)
            for group, event, order_id, version, value, unit in cursor.fetchall()
        }
        cursor.execute(_MAILS, [activity_id])
        mails = {(event, order_id): status for event, order_id, status in cursor.fetchall()}
    events = [event for order in orders for event in _facts(order)]
    facts = {(event.event_type, event.order_id) for event in events}
    missing = Counter[str]()
    wrong = []
    for group in effect_groups():
        for event in events:
            fact = (event.event_type, event.order_id)
            if group.name == CG_NOTIFY:  # its effect is the mail
                missing[group.name] += fact not in mails
                continue
            effect = group.effect_of(event)
            if effect is None:
                continue
            found = written.pop((group.name, *fact, group.rule_version), None)
            missing[group.name] += found is None
            if found not in (None, (effect.value, effect.unit)):
                wrong.append(f"effect of {group.name}, {fact}: {found}, not {effect.value}")
    wrong += [f"effect that no order owes: {key}" for key in sorted(written)]
    wrong += [f"mail that no order owes: {fact}" for fact in sorted(mails.keys() - facts)]
    return Effects(missing=+missing, wrong=wrong, mails=mails)


def _facts(order: OrderRecord) -> list[OrderEvent]:
    """Return the facts of a paid order as its events tell them; a refund was a payment before."""
    told = [ORDER_PAID]
    if order.status == OrderStatus.REFUNDED:
        told.append(ORDER_REFUNDED)
    now = timezone.now()
    return [order_event_decoder.decode(order_event(event, order, now=now).body) for event in told]
