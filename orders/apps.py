"""Django's registration of the app."""

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    """The `orders` app."""

    name = "orders"
