"""These tests commit, and clean up by deleting: see `committed`."""

import pytest
from django.contrib.auth.models import User

from tests.fixtures import rebuild


@pytest.fixture
def _django_db_helper(committed: None) -> None:
    """Stand in for pytest-django's own, so that the mark `django_db` means real commits here."""


@pytest.fixture
def operator(committed: None) -> User:
    """Whoever may refund."""
    return rebuild.operator("orders.refund_order")
