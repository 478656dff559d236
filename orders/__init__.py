"""Orders: the order transaction, its safety nets, and what buyers may read of them."""
