"""Seeded fault search on a private real stack: `bin/chaos --help`, docs/reliability.md."""
