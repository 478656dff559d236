"""Which providers there are; one line for each."""

import functools

from django.conf import settings

from orders.payments import sandbox
from orders.payments.port import PaymentProvider, ProviderUnavailable


def current() -> PaymentProvider:
    """Return the provider of new payments.

    Raises:
        ProviderUnavailable: none is configured (PAYMENT_PROVIDER_URL is empty).
    """
    return named(sandbox.NAME)


def named(name: str) -> PaymentProvider:
    """Return the provider of a stored row or of a webhook's address.

    Raises:
        ProviderUnavailable: there is no such provider, or it is not configured.
    """
    if name != sandbox.NAME or not settings.PAYMENT_PROVIDER_URL:
        raise ProviderUnavailable(f"payment provider {name!r} is not configured")
    return _sandbox(
        settings.PAYMENT_PROVIDER_URL,
        settings.PAYMENT_PROVIDER_KEY,
        settings.SECKILL_WEBHOOK_SECRET,
        settings.SECKILL_PAYMENT_DEADLINE_MS,
        settings.SECKILL_PAYMENT_NOT_FOUND_WINDOW_S,
        settings.SECKILL_WEBHOOK_TOLERANCE_S,
        settings.PAYMENT_NOTIFY_URL,
    )


@functools.lru_cache(maxsize=8)
def _sandbox(
    url: str, key: str, secret: str, deadline_ms: int, window_s: int, tolerance_s: int, notify: str
) -> PaymentProvider:
    return sandbox.SandboxProvider(
        url=url,
        api_key=key,
        webhook_secret=secret,
        deadline_ms=deadline_ms,
        not_found_window_s=window_s,
        webhook_tolerance_s=tolerance_s,
        notify_url=notify,
    )
