"""Which payment provider is asked: the first for new payments, each for what it began."""

from types import SimpleNamespace

import pytest
from pytest_django import Settings

from orders.payments import providers
from orders.payments.port import ProviderUnavailable
from seckill import checks


def bank() -> SimpleNamespace:
    """A provider of somebody's own, as SECKILL_PAYMENT_PROVIDERS names it."""
    return SimpleNamespace(name="bank")


SANDBOX = {"sandbox": "orders.payments.sandbox.configured"}


@pytest.fixture
def two(settings: Settings) -> Settings:
    settings.SECKILL_PAYMENT_PROVIDERS = {"bank": f"{__name__}.bank", **SANDBOX}
    settings.PAYMENT_PROVIDER_URL = "http://127.0.0.1:1"
    return settings


def test_the_first_gets_new_payments_and_the_others_end_what_they_began(two: Settings) -> None:
    assert providers.current().name == "bank"
    assert providers.named("sandbox").name == "sandbox"
    assert providers.named("sandbox") is providers.named("sandbox")  # keeps its connections
    assert checks.check_relations() == []


def test_nobody_is_asked_who_is_not_configured(two: Settings) -> None:
    two.PAYMENT_PROVIDER_URL = ""
    for name in ("sandbox", "other", ""):
        with pytest.raises(ProviderUnavailable):
            providers.named(name)
    two.SECKILL_PAYMENT_PROVIDERS = {}
    with pytest.raises(ProviderUnavailable):
        providers.current()


def test_a_wrong_path_and_a_schedule_without_broker_are_named_at_the_start(two: Settings) -> None:
    two.SECKILL_PAYMENT_PROVIDERS = {"bank": "nowhere.at_all"}
    assert [error.id for error in checks.check_relations()] == ["seckill.E018"]
    two.CELERY_BROKER_URL = ""
    assert [error.id for error in checks.check_celery()] == ["seckill.E021"]
