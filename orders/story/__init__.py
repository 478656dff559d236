"""The whole story of one purchase, for operators: read only, from every store that knows of it."""
