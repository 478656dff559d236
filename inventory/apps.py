"""Django's registration of the app."""

from django.apps import AppConfig


class InventoryConfig(AppConfig):
    """The `inventory` app."""

    name = "inventory"
