"""The embedded real stack: PostgreSQL, Redis and RocketMQ started from packages, without Docker and without root."""
