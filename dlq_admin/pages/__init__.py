"""The console's pages in the Django admin: thin, the services decide. docs/operations/dlq.md."""
