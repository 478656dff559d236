"""The REST API for buyers: everything but the hot endpoint. Source: docs/api.md."""
