"""Django's registration of the app."""

from django.apps import AppConfig


class MessagingConfig(AppConfig):
    """The `messaging` app."""

    name = "messaging"

    def ready(self) -> None:
        """Register the system checks."""
        from messaging import checks  # noqa: F401
