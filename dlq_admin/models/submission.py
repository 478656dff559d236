"""Forms that were sent: a double click or a reload does nothing twice."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Now


class Submission(models.Model):
    """The key of a form that was carried out, or is being carried out."""

    key = models.CharField(max_length=40, primary_key=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    action = models.CharField(max_length=40)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dlq_submission"
        default_permissions = ()
        indexes = [models.Index(fields=["created_at"], name="dlq_submission_at_idx")]

    def __str__(self) -> str:
        return f"{self.action} {self.key}"
