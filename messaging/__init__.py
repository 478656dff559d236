"""Transport: envelope, broker, inbox, outbox, quarantine and the loops around them."""
