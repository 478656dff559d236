"""The project: settings, admission, REST API, pages, wiring and commands."""
