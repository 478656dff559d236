"""Commands of the `inventory` app."""
