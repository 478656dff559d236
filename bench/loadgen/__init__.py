"""A cheap HTTP/1.1 load generator in a process of its own: `python -m bench.loadgen PLAN.json`.

It shares the cores with what it measures, so a request costs it as little as Python allows: bytes
are built before the clock starts, answers are searched rather than parsed, one request is in flight
on each connection.
"""
