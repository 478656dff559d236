"""Effects of a paid or refunded order: one small file a consumer group. See docs/effects.md."""
