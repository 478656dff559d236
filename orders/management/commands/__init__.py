"""Commands of orders."""
