"""One module a command; `manage.py help` lists them."""
