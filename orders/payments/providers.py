"""Which providers there are: those of SECKILL_PAYMENT_PROVIDERS, name=dotted.path.of.a.function.

The function takes nothing and returns the provider; it is asked at each use, so it keeps what is
dear to make. The first is for new payments; the others end what they began.
"""

from django.conf import settings
from django.utils.module_loading import import_string

from orders.payments.port import PaymentProvider, ProviderUnavailable


def current() -> PaymentProvider:
    """Return the provider of new payments.

    Raises:
        ProviderUnavailable: it is not configured.
    """
    return named(next(iter(settings.SECKILL_PAYMENT_PROVIDERS), ""))


def named(name: str) -> PaymentProvider:
    """Return the provider of a stored row or of a webhook's address.

    Raises:
        ProviderUnavailable: there is no such provider, or it is not configured.
    """
    path = settings.SECKILL_PAYMENT_PROVIDERS.get(name)
    if path is None:
        raise ProviderUnavailable(f"payment provider {name!r} is not configured")
    provider: PaymentProvider = import_string(path)()
    return provider
