"""How an amount of money is written for people (pure)."""


def money(cents: int, currency: str) -> str:
    """Return an amount as people read it: two decimals and the currency."""
    return f"{cents / 100:.2f} {currency}"
