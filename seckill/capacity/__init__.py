"""Formulas of size: backlog, drain time, message rates, storage, queues, workers (pure)."""
