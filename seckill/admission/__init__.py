"""The hot path: one endpoint, in front of Django. Read `app.py` first. Source: docs/flow.md."""
