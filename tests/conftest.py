"""Shared fixtures. Every real part is required: what is missing fails, nothing is skipped."""

import pytest

pytest_plugins = [
    "tests.fixtures.broker",
    "tests.fixtures.database",
    "tests.fixtures.gate",
    "tests.fixtures.payments",
    "tests.fixtures.rebuild",
    "tests.fixtures.system",
    "tests.fixtures.web",
]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what starts processes last: the quick tests get the machine for themselves."""
    items.sort(
        key=lambda item: (
            "system" in getattr(item, "fixturenames", ()),
            item.get_closest_marker("process") is not None
            or item.get_closest_marker("faults") is not None,
        )
    )
