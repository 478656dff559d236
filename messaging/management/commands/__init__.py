"""Management commands of messaging."""
