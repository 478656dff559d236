"""The providers' own books beside ours, on a schedule: what differs is an item for people.

A webhook that was lost and a capture after the provider said NOT_FOUND leave no open row that a
loop would ask about, and our own tables agree with each other: only the provider's book tells.
"""

import structlog
from django.conf import settings
from django.db import transaction

from orders.payments import items, providers
from orders.payments.money import BookDifference, compare_book
from orders.payments.port import PaymentProvider, ProviderUnavailable

log = structlog.get_logger(__name__)


def compare_all() -> int:
    """Open an item for each difference of each configured provider; returns how many.

    A provider whose book cannot be read now is told in the log and read the next time.

    Cost: see `compare_book`; twice where something differs.
    """
    found = 0
    for name in settings.SECKILL_PAYMENT_PROVIDERS:
        try:
            lasting = _lasting(providers.named(name))
        except ProviderUnavailable as error:
            log.warning("book_not_read", provider=name, error=str(error))
            continue
        for difference in lasting:
            _open(name, difference)
        found += len(lasting)
    return found


def _lasting(provider: PaymentProvider) -> list[BookDifference]:
    """Return what differs twice: the books are no snapshot, what settles meanwhile differs once."""
    first = compare_book(provider).differences
    if not first:
        return []
    again = set(compare_book(provider).differences)
    return [difference for difference in first if difference in again]


def _open(provider: str, difference: BookDifference) -> None:
    log.error(
        "book_differs",
        provider=provider,
        kind=difference.kind,
        order_id=difference.order_id,
        key=difference.key,
    )
    with transaction.atomic(durable=True):
        items.open_with_facts(
            items.PAYMENT,
            difference.key,
            reason=f"BOOK_{difference.kind}",
            order_id=difference.order_id,
            facts={
                "provider": provider,
                "key": difference.key,
                "ours": difference.ours,
                "theirs": difference.theirs,
                "provider_id": difference.provider_id,
            },
        )
