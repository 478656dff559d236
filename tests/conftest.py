"""Shared fixtures. Every real part is required: what is missing fails, nothing is skipped."""

import os

from django.conf import settings as django_settings
from hypothesis import settings

# No governor runs beside most tests: they hold with the settings' own limits.
os.environ.setdefault("SECKILL_GOVERNOR", "off")
django_settings.SECKILL_GOVERNOR = os.environ["SECKILL_GOVERNOR"]  # read before this file was

# The same examples in every run: a landing does not depend on luck. HYPOTHESIS_PROFILE=search looks
# for new ones.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

pytest_plugins = [
    "tests.fixtures.broker",
    "tests.fixtures.database",
    "tests.fixtures.dlq",
    "tests.fixtures.exporter",
    "tests.fixtures.gate",
    "tests.fixtures.payments",
    "tests.fixtures.rebuild",
    "tests.fixtures.reconcile",
    "tests.fixtures.system",
    "tests.fixtures.redis_cluster",  # after system, which it imports
    "tests.fixtures.scheduling",  # so does this
    "tests.fixtures.web",
]
