"""The audit record of the console: `record` writes, `verify` proves, `export` hands out."""

from dlq_admin.audit.record import record

__all__ = ["record"]
