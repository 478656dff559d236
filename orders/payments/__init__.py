"""Money: attempts to pay, refunds, the provider's webhooks, and the table that proves them."""
