"""Shared fixtures. Every real part is required: what is missing fails, nothing is skipped."""

pytest_plugins = [
    "tests.fixtures.broker",
    "tests.fixtures.database",
    "tests.fixtures.gate",
    "tests.fixtures.payments",
    "tests.fixtures.rebuild",
    "tests.fixtures.system",
    "tests.fixtures.web",
]
