"""A dead message as dry run and replay see it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from dlq_admin.models.message import DlqMessage
from messaging.facts import read_facts
from messaging.quarantine import OUTBOX_GROUP
from messaging.topology import GROUPS, group_spec


@dataclass(frozen=True, kw_only=True, slots=True)
class Dead:
    """A dead message: whose it is, what it carries, and what of a purchase can be read from it."""

    pk: int
    group: str
    message_id: str
    topic: str
    tag: str
    keys: tuple[str, ...]
    body: bytes
    sha256: str
    reservation_id: str
    activity_id: int | None
    sku_id: int | None
    user_id: str | None
    quantity: int | None
    valid_until: datetime | None
    traceparent: str
    version: int

    @property
    def hash_matches(self) -> bool:
        """Whether the bytes are those that were captured."""
        return hashlib.sha256(self.body).hexdigest() == self.sha256

    def with_body(self, body: bytes) -> "Dead":
        """Return the message as an edit would send it."""
        return replace(self, body=body, sha256=hashlib.sha256(body).hexdigest())


def dead_of(row: DlqMessage) -> Dead:
    """Read a stored message; what its body does not tell comes from the columns of its row."""
    body = bytes(row.body)
    keys = tuple(row.keys.split())
    facts = read_facts(body, keys)
    return Dead(
        pk=row.pk,
        group=row.consumer_group,
        message_id=row.message_id,
        topic=_topic(row),
        tag=row.tag,
        keys=keys,
        body=body,
        sha256=row.body_sha256,
        reservation_id=row.reservation_id or facts.reservation_id or "",
        activity_id=row.activity_id or facts.activity_id,
        sku_id=row.sku_id or facts.sku_id,
        user_id=row.user_id or facts.user_id,
        quantity=row.quantity or facts.quantity,
        valid_until=row.valid_until or facts.valid_until,
        traceparent=str(row.properties.get("traceparent", "")),
        version=row.version,
    )


def load(pks: Sequence[int], *, lock: bool = False) -> dict[int, Dead]:
    """Read messages by key; `lock` holds their rows until the caller's transaction ends."""
    rows = DlqMessage.objects.filter(pk__in=list(pks)).order_by("pk")
    if lock:
        rows = rows.select_for_update()
    return {row.pk: dead_of(row) for row in rows}


def ticket_of(pk: int) -> int | None:
    """Return the ticket that deals with a message now, if there is one."""
    return DlqMessage.objects.filter(pk=pk).values_list("ticket_id", flat=True).first()


def _topic(row: DlqMessage) -> str:
    """A group reads one topic: its dead messages go back there, whatever queue they died in."""
    if row.consumer_group != OUTBOX_GROUP and row.consumer_group in _GROUPS:
        return group_spec(row.consumer_group).topic
    return row.topic


_GROUPS = frozenset(group.name for group in GROUPS)
