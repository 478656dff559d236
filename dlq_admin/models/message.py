"""Dead messages as evidence."""

from django.db import models
from django.db.models.functions import Now


class FailureGroup(models.Model):
    """Dead messages of one cause."""

    consumer_group = models.CharField(max_length=120)
    error_class = models.CharField(max_length=120)
    fingerprint = models.CharField(max_length=64)

    class Meta:
        db_table = "dlq_admin_failure_group"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.consumer_group} {self.error_class}"


class DlqMessage(models.Model):
    """A dead message."""

    consumer_group = models.CharField(max_length=120)
    message_id = models.CharField(max_length=64)
    failure_group = models.ForeignKey(FailureGroup, on_delete=models.PROTECT)
    status = models.CharField(max_length=12, default="OPEN")
    topic = models.CharField(max_length=120)
    tag = models.CharField(max_length=64, default="")
    keys = models.TextField(default="")
    properties = models.JSONField(default=dict)
    body = models.BinaryField()
    body_sha256 = models.CharField(max_length=64)
    reservation_id = models.CharField(max_length=40, null=True)  # noqa: DJ001
    activity_id = models.BigIntegerField(null=True)
    sku_id = models.BigIntegerField(null=True)
    user_id = models.CharField(max_length=64, null=True)  # noqa: DJ001
    quantity = models.IntegerField(null=True)
    valid_until = models.DateTimeField(null=True)
    first_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dlq_admin_message"
        default_permissions = ()

    def __str__(self) -> str:
        return self.message_id
