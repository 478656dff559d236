"""A payment provider to develop and test against: its own process, its own book, no Django.

It behaves as good providers do (idempotency keys, signed webhooks with retries, queries by key, a
book to compare with), and on request as bad days do (`faults.py`). No real money, never public.
"""
