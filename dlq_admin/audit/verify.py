"""Proof of the audit record: every hash computed again, every number in place, every end right.

Found are: an edited row, a row taken out of the middle, a cut tail, a chain that is gone, and a
chain or an anchor that was rewritten after it was anchored.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db import connection

from dlq_admin.audit import metrics
from dlq_admin.audit.chain import FIRST, anchor_hash, event_hash, read_heads

_EVENTS: Final = """
SELECT chain, seq, at, kind, user_id, actor, detail, prev_hash, hash FROM dlq_admin_audit_event
 WHERE %s::bigint IS NULL OR chain = %s::bigint
 ORDER BY chain, seq
"""
_HEADS: Final = """
SELECT chain, seq, hash FROM dlq_admin_audit_head WHERE %s::bigint IS NULL OR chain = %s::bigint
"""
_ANCHORS: Final = "SELECT id, at, heads, prev_hash, hash FROM dlq_admin_audit_anchor ORDER BY id"
_PAGE: Final = 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something that is not as it was written. `chain` is None for an anchor."""

    chain: int | None
    seq: int | None
    what: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """What a run looked at and what it found."""

    chains: int
    events: int
    anchors: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether everything is as it was written."""
        return not self.findings


def verify(*, ticket_id: int | None = None, anchor: str = "") -> Verification:
    """Check one ticket's chain, or all of them with all anchors.

    Args:
        ticket_id: only this chain; None for everything.
        anchor: a hash from the log that must still be among the anchors; these are checked, too,
            with one ticket's chain.

    Cost: reads every event of the chains; no locks.
    """
    findings: list[Finding] = []
    # Anchors, then ends, then events: what is written meanwhile lies behind the end that was read.
    anchors = list(_rows(_ANCHORS))
    wanted, anchor_findings = _anchored(anchors)
    if ticket_id is None or anchor:
        findings += anchor_findings
    if anchor and anchor not in {row[4] for row in anchors}:
        findings.append(Finding(chain=None, seq=None, what=f"no anchor has the hash {anchor}"))
    if ticket_id is not None:
        wanted = {key: value for key, value in wanted.items() if key[0] == ticket_id}
    heads = _heads(ticket_id)
    last: dict[int, tuple[int, str]] = {}
    at_head: dict[int, str] = {}
    events = 0
    for row in _rows(_EVENTS, ticket_id, ticket_id):
        event = _Event(*row)
        events += 1
        findings += _check(event, before=last.get(event.chain, (0, FIRST)))
        if wanted.pop((event.chain, event.seq), event.hash) != event.hash:
            findings.append(_finding(event.chain, event.seq, "is not the event that was anchored"))
        last[event.chain] = (event.seq, event.hash)
        if heads.get(event.chain, (0, ""))[0] == event.seq:
            at_head[event.chain] = event.hash
    findings += [_finding(chain, seq, "was anchored and is gone") for chain, seq in sorted(wanted)]
    for chain, (seq, end) in sorted(heads.items()):
        if at_head.get(chain) != end:
            findings.append(_finding(chain, seq, "is not there as its chain's end: a cut tail"))
    new = last.keys() - heads.keys()
    if new:
        for chain in sorted(new - _heads(ticket_id).keys()):
            findings.append(_finding(chain, last[chain][0], "has no recorded end"))
    if ticket_id is None:
        metrics.FINDINGS.set(len(findings))
    return Verification(
        chains=len(last), events=events, anchors=len(anchors), findings=tuple(findings)
    )


class _Event(NamedTuple):
    chain: int
    seq: int
    at: datetime
    kind: str
    user_id: int | None
    actor: str
    detail: str
    prev_hash: str
    hash: str


def _check(event: _Event, *, before: tuple[int, str]) -> list[Finding]:
    """Compare an event with its own hash and with the one before it."""
    found = []
    if event.seq != before[0] + 1:
        found.append(_finding(event.chain, event.seq, f"follows {before[0]}: events are missing"))
    elif event.prev_hash != before[1]:
        found.append(_finding(event.chain, event.seq, "does not continue the event before it"))
    computed = event_hash(
        prev_hash=event.prev_hash,
        chain=event.chain,
        seq=event.seq,
        at=event.at,
        kind=event.kind,
        user_id=event.user_id,
        actor=event.actor,
        detail=event.detail,
    )
    if computed != event.hash:
        found.append(_finding(event.chain, event.seq, "was changed: its hash is another"))
    return found


def _heads(ticket_id: int | None) -> dict[int, tuple[int, str]]:
    return {chain: (seq, end) for chain, seq, end in _rows(_HEADS, ticket_id, ticket_id)}


def _anchored(anchors: list[Any]) -> tuple[dict[tuple[int, int], str], list[Finding]]:
    """Return which events anchors name, and which anchors are not as they were written."""
    wanted: dict[tuple[int, int], str] = {}
    findings: list[Finding] = []
    before = FIRST
    for number, at, heads, prev_hash, stored in anchors:
        right = anchor_hash(prev_hash=prev_hash, at=at, heads=heads) == stored
        if not right or prev_hash != before:
            findings.append(Finding(chain=None, seq=None, what=f"anchor {number} was changed"))
        before = stored
        try:
            wanted |= {(chain, seq): end for chain, (seq, end) in read_heads(heads).items()}
        except ValueError:
            findings.append(Finding(chain=None, seq=None, what=f"anchor {number} is unreadable"))
    return wanted, findings


def _finding(chain: int, seq: int, what: str) -> Finding:
    return Finding(chain=chain, seq=seq, what=f"event {chain}.{seq} {what}")


def _rows(sql: str, *params: Any) -> Iterator[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        while page := cursor.fetchmany(_PAGE):
            yield from page
