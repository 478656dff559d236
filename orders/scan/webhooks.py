"""Applies webhooks that came before their payment, every 10 s; after 24 h they are items."""

from typing import Final

from orders.payments.webhooks import retry_parked

BATCH: Final = 200


class WebhooksJob:
    """Tries parked webhooks again, those that wait longest first."""

    name: Final = "webhooks"
    tick_s: Final = 1.0

    def run_once(self) -> int:
        """Try one batch; returns how many are not parked any more.

        Cost: one index scan; one short transaction for each parked webhook that is due.
        """
        return retry_parked(BATCH)

    def close(self) -> None:
        """Nothing to close."""
