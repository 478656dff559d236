"""The trace id in a W3C traceparent, for log lines (pure)."""


def trace_id(traceparent: str) -> str:
    """Return the trace id of a W3C traceparent, or an empty string."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) == 4 else ""
