"""Reads for other apps, the console and the loops: frozen records, never models."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import connection

from messaging.models import GroupPause, Heartbeat

LIVE_S: Final = 10.0  # a worker whose last beat is older is not alive
_COUNT_LIMIT: Final = 100_000

# What the members of a group last said, newest first; the database's clock judges their age.
_MEMBERS: Final = """
SELECT detail, state, extract(epoch FROM now() - beat_at)::float8
FROM messaging_heartbeat WHERE "group" = %s ORDER BY beat_at DESC LIMIT 100
"""

# Loops of a group that were heard of lately.
_LIVE: Final = """
SELECT worker_id, state, detail FROM messaging_heartbeat
WHERE "group" = %s AND state <> 'STOPPED' AND beat_at > now() - %s * interval '1 second'
ORDER BY worker_id LIMIT 500
"""

# What the broker's exporter last told a living sender of a group.
_AT_BROKER: Final = """
SELECT detail -> 'backlogs' -> %s::text
FROM messaging_heartbeat
WHERE role = 'sender' AND state <> 'STOPPED' AND beat_at > now() - %s * interval '1 second'
  AND detail -> 'backlogs' ? %s::text
ORDER BY beat_at DESC LIMIT 1
"""

# Unsent rows of a lane (bounded) and the age of the oldest one; both on the index of due rows.
_BACKLOG: Final = """
SELECT lane, (
    SELECT count(*) FROM (
        SELECT 1 FROM messaging_outbox o WHERE o.lane = l.lane AND o.state = 0 LIMIT %s) AS counted
), (
    SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM (
        SELECT created_at FROM messaging_outbox o WHERE o.lane = l.lane AND o.state = 0
            AND (attempts > 0 OR available_at <= now()) -- not what is held back on purpose
        ORDER BY available_at, id LIMIT 1000) AS oldest
)
FROM (VALUES (0), (1), (2)) AS l(lane)
"""

# Open quarantine rows of each group, and the age of the oldest.
_QUARANTINE: Final = """
SELECT consumer_group, count(*), extract(epoch FROM now() - min(first_at))::float8
FROM messaging_quarantine WHERE status = 'OPEN' GROUP BY consumer_group ORDER BY consumer_group
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupLag:
    """How far a group is behind.

    `members` are its live loops. `lag_s` is the age of what the slowest of them is handling;
    without a live member it grows with the time since the last one was heard of (0 when there
    never was one). `drain_per_s` is the sum of what they settle.
    """

    members: int
    lag_s: float
    drain_per_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupMember:
    """A live loop of a group. `process` is host:pid; `detail` what it last said of itself."""

    process: str
    state: str
    detail: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class AtBroker:
    """Messages of a group at the broker: `ready` are held by nobody, `in_flight` by somebody."""

    ready: int
    in_flight: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneBacklog:
    """Unsent outbox rows of a lane: counted up to 100 000, and the age of an oldest one."""

    lane: int
    rows: int
    oldest_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenQuarantine:
    """Open quarantine rows of a group."""

    group: str
    rows: int
    oldest_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRecord:
    """A worker's loop as its heartbeat tells it."""

    worker_id: str
    role: str
    group: str
    build: int
    state: str
    alive: bool
    beat_at: datetime
    detail: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class PausedGroup:
    """A group that must not receive."""

    group: str
    reason: str
    paused_by: str
    paused_at: datetime


def group_lag(group: str) -> GroupLag:
    """Return how far a group is behind, from its members' heartbeats. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(_MEMBERS, [group])
        rows = [
            (_detail(detail), state != "STOPPED" and age_s <= LIVE_S, age_s)
            for detail, state, age_s in cursor.fetchall()
        ]
    live = [(detail, age_s) for detail, alive, age_s in rows if alive]
    if live:
        return GroupLag(
            members=len(live),
            lag_s=max(float(detail.get("lag_s", 0.0)) for detail, _ in live),
            drain_per_s=sum(float(detail.get("drain_per_s", 0.0)) for detail, _ in live),
        )
    last = [float(detail.get("lag_s", 0.0)) + age_s for detail, _, age_s in rows[:1]]
    return GroupLag(members=0, lag_s=last[0] if last else 0.0, drain_per_s=0.0)


def group_members(group: str) -> list[GroupMember]:
    """Return the live loops of a group. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(_LIVE, [group, LIVE_S])
        return [
            GroupMember(process=worker_id.rsplit(":", 1)[0], state=state, detail=_detail(detail))
            for worker_id, state, detail in cursor.fetchall()
        ]


def broker_backlog(group: str) -> AtBroker | None:
    """Return what the broker holds for a group, some 10 s old at most; None when nobody knows.

    One statement.
    """
    with connection.cursor() as cursor:
        cursor.execute(_AT_BROKER, [group, LIVE_S, group])
        row = cursor.fetchone()
    found = _detail(row[0]) if row else None
    if not isinstance(found, dict):  # nobody knows, or a foreign worker wrote it
        return None
    ready, in_flight = found.get("ready"), found.get("in_flight")
    if not isinstance(ready, int) or not isinstance(in_flight, int):
        return None
    return AtBroker(ready=ready, in_flight=in_flight)


def workers() -> list[WorkerRecord]:
    """Return the heartbeats of the last day, newest first."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        now = cursor.fetchone()[0]
    return [
        WorkerRecord(
            worker_id=row.worker_id,
            role=row.role,
            group=row.group,
            build=row.build,
            state=row.state,
            alive=row.state != "STOPPED" and (now - row.beat_at).total_seconds() <= LIVE_S,
            beat_at=row.beat_at,
            detail=row.detail,
        )
        for row in Heartbeat.objects.order_by("-beat_at")[:500]
    ]


def paused_groups() -> list[PausedGroup]:
    """Return the paused groups."""
    return [
        PausedGroup(
            group=row.consumer_group,
            reason=row.reason,
            paused_by=row.paused_by,
            paused_at=row.paused_at,
        )
        for row in GroupPause.objects.order_by("consumer_group")
    ]


def outbox_backlog() -> list[LaneBacklog]:
    """Return what the sender has not sent yet, for each lane. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(_BACKLOG, [_COUNT_LIMIT])
        return [LaneBacklog(lane=row[0], rows=row[1], oldest_s=row[2]) for row in cursor.fetchall()]


def open_quarantine() -> list[OpenQuarantine]:
    """Return how many open quarantine rows each group has. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(_QUARANTINE)
        return [OpenQuarantine(group=row[0], rows=row[1], oldest_s=row[2]) for row in cursor]


def _detail(value: Any) -> dict[str, Any]:
    # A raw cursor hands JSON over as text.
    found: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
    return found
