"""Replays: planned, approved, sent by a worker, proven. The life of batches and items.

Services for pages (keyword-only; permission, state and hash are checked inside, all are audited):

| call | permission |
|---|---|
| `plan(ticket_id, message_pks, disposition, user, reason, idempotency_key, rate_cap, …)` | plan_replay |
| `plan_all(ticket_id, …)`: everything open of the ticket, at most 1 000, frozen | plan_replay |
| `plan_edited(message_pk, body, …)`: second level | plan_replay |
| `request_approval(batch_id, user)` | request_replay |
| `approve(batch_id, plan_hash, password, user, comment)` / `reject(batch_id, user, reason)` | approve_replay |
| `break_glass(batch_id, plan_hash, password, reason, user)`: started now, approved within the hour | break_glass |
| `pause(batch_id, user, reason)`, `set_rate(batch_id, user, rate)` | pause_replay |
| `resume(batch_id, user, reason)`, `abort(batch_id, user, reason)` | resume_replay / abort_replay |
| `check_now(ticket_id, user)`: invariants of everything the ticket touched | plan_replay |

Reads: `dlq_admin.replay.selectors`. Refusals raise `dlq_admin.errors`. Source:
docs/operations/replay.md.
"""  # noqa: E501 - a table

from dlq_admin.replay.approval import approve, reject, request_approval
from dlq_admin.replay.control import abort, pause, resume, set_rate
from dlq_admin.replay.glass import break_glass
from dlq_admin.replay.plan import PlanResult, plan, plan_all, plan_edited
from dlq_admin.replay.prove import check_now
from dlq_admin.states import BatchStatus, Disposition, ItemStatus

__all__ = [
    "BatchStatus",
    "Disposition",
    "ItemStatus",
    "PlanResult",
    "abort",
    "approve",
    "break_glass",
    "check_now",
    "pause",
    "plan",
    "plan_all",
    "plan_edited",
    "reject",
    "request_approval",
    "resume",
    "set_rate",
]
