"""Django's registration of the app."""

from django.apps import AppConfig


class DlqAdminConfig(AppConfig):
    """The `dlq_admin` app."""

    name = "dlq_admin"
    verbose_name = "Dead messages"
