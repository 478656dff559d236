"""Django's registration of the app."""

from django.apps import AppConfig


class SeckillConfig(AppConfig):
    """The `seckill` app."""

    name = "seckill"

    def ready(self) -> None:
        """Register the system checks; send spans when an exporter is configured."""
        from django.conf import settings

        from seckill import checks  # noqa: F401

        if settings.SECKILL_TRACES == "otlp":
            from telemetry.export import start_otlp

            start_otlp(service=settings.SECKILL_ROLE, ratio=settings.SECKILL_TRACE_RATIO)
