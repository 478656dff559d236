"""Operators' pages in the Django admin: read only, permission-checked."""
