"""Django's registration of the app."""

from django.apps import AppConfig


class MessagingConfig(AppConfig):
    """The `messaging` app."""

    name = "messaging"
