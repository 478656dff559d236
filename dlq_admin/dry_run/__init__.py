"""Dry run: what a replay of a dead message would do, before anybody asks for it.

For pages: `dry_run(message_pk=…, disposition=…, extension_s=…, user=…)` stores and returns a
`DryRunRecord`; `domain_state(message_pk=…, user=…)` returns the rows beside the message.
"""

from dlq_admin.dry_run.domain_state import DomainState, domain_state
from dlq_admin.dry_run.run import DryRunRecord, dry_run, latest
from dlq_admin.dry_run.verdict import Verdict

__all__ = ["DomainState", "DryRunRecord", "Verdict", "domain_state", "dry_run", "latest"]
