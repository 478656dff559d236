"""These tests commit, and clean up by deleting: see `committed`."""

import pytest


@pytest.fixture
def _django_db_helper(committed: None) -> None:
    """Stand in for pytest-django's own, so that the mark `django_db` means real commits here."""
