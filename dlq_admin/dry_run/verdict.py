"""What a replay of a message would do, decided from facts alone (pure); first match counts.

Source: the table of docs/operations/replay.md, in its order.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final


class Verdict(StrEnum):
    """What would happen."""

    BLOCKED = "BLOCKED"  # must not be replayed as it is
    BREACH = "BREACH"  # the stores contradict each other: page, repair first
    NOOP = "NOOP"  # its effect is there already
    WILL_CREATE = "WILL_CREATE"
    WILL_REJECT = "WILL_REJECT"
    WILL_APPLY = "WILL_APPLY"  # a message of another group: its handler decides
    WILL_COMPENSATE = "WILL_COMPENSATE"
    WILL_DISCARD = "WILL_DISCARD"


PLANNABLE: Final = frozenset(
    {
        Verdict.NOOP, Verdict.WILL_CREATE, Verdict.WILL_REJECT, Verdict.WILL_APPLY,
        Verdict.WILL_COMPENSATE, Verdict.WILL_DISCARD,
    }
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderFacts:
    """What decides about a CREATE_ORDER message. `inbox` is an outcome, or empty.

    `release_state` is empty without a reservation row. `gate_names_it` is None when nobody asked.
    """

    body_error: str
    hash_matches: bool
    inbox: str
    inbox_reason: str
    order_status: str
    other_live_order: bool
    release_state: str
    outcome: str
    valid_until: datetime | None
    now: datetime
    extended: bool
    extension_asked: bool
    gate_names_it: bool | None
    held: bool
    voided: bool
    stock: int | None
    quantity: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """A verdict with its stable reason; `needs_extension` when the approval must write one."""

    verdict: Verdict
    reason: str
    needs_extension: bool = False


def judge_order(facts: OrderFacts) -> Judgement:
    """Say what replaying a CREATE_ORDER message would do."""
    if facts.body_error:
        return _blocked(facts.body_error)
    if not facts.hash_matches:
        return _blocked("HASH_MISMATCH")
    if facts.inbox == "CREATED" or (facts.inbox == "STALE_NOOP" and facts.outcome == "ORDERED"):
        if facts.order_status:
            return Judgement(verdict=Verdict.NOOP, reason="ORDER_EXISTS")
        return Judgement(verdict=Verdict.BREACH, reason="INBOX_CREATED_WITHOUT_ORDER")
    if facts.inbox:
        return Judgement(verdict=Verdict.NOOP, reason=f"REJECTED_{facts.inbox_reason}"[:64])
    if facts.other_live_order:
        return Judgement(verdict=Verdict.WILL_REJECT, reason="DUPLICATE_ORDER")
    if facts.release_state in ("DUE", "DONE"):
        return _blocked("RESERVATION_RELEASED")
    if facts.voided:
        return Judgement(verdict=Verdict.WILL_REJECT, reason="ACTIVITY_VOIDED")
    expired = facts.valid_until is None or facts.valid_until <= facts.now
    needs = expired and not facts.extended
    if needs:
        if not (facts.held and facts.extension_asked):
            return _blocked("RESERVATION_EXPIRED")
        if not facts.gate_names_it:
            return _blocked("GATE_NAMES_ANOTHER")
    if facts.stock is None:
        return _blocked("NO_STOCK_ROW")
    if facts.stock < facts.quantity:
        return Judgement(
            verdict=Verdict.WILL_REJECT, reason="NO_FINAL_STOCK", needs_extension=needs
        )
    return Judgement(verdict=Verdict.WILL_CREATE, reason="STOCK", needs_extension=needs)


def judge_other(*, body_error: str, hash_matches: bool, inbox: str) -> Judgement:
    """Say what replaying a message of any other group would do: what its inbox knows, or apply."""
    if body_error:
        return _blocked(body_error)
    if not hash_matches:
        return _blocked("HASH_MISMATCH")
    if inbox:
        return Judgement(verdict=Verdict.NOOP, reason=f"INBOX_{inbox}")
    return Judgement(verdict=Verdict.WILL_APPLY, reason="HANDLER")


def judge_compensate(*, is_order_group: bool, held: bool, complete: bool, inbox: str) -> Judgement:
    """Say what COMPENSATE would do: reject a held reservation and give its units back."""
    if not is_order_group:
        return _blocked("NOTHING_TO_COMPENSATE")
    if inbox:
        return Judgement(verdict=Verdict.NOOP, reason=f"INBOX_{inbox}")
    if not held:
        return _blocked("NOT_HELD")
    if not complete:
        return _blocked("OWNER_UNKNOWN")
    return Judgement(verdict=Verdict.WILL_COMPENSATE, reason="HELD")


def judge_discard(*, is_order_group: bool, held: bool) -> Judgement:
    """Say what DISCARD would do: nothing, and only when nothing is held."""
    if is_order_group and held:
        return _blocked("STILL_HELD")
    return Judgement(verdict=Verdict.WILL_DISCARD, reason="NOTHING_HELD")


def _blocked(reason: str) -> Judgement:
    return Judgement(verdict=Verdict.BLOCKED, reason=reason)
