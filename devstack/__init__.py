"""The embedded real stack: PostgreSQL, Redis and RocketMQ from packages; no Docker, no root."""
