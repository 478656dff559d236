"""Django's registration of the app."""

from django.apps import AppConfig


class SeckillConfig(AppConfig):
    """The `seckill` app."""

    name = "seckill"

    def ready(self) -> None:
        """Register the system checks."""
        from seckill import checks  # noqa: F401
