"""Tickets."""

from django.db import models

from dlq_admin.models.message import FailureGroup


class Ticket(models.Model):
    """A ticket."""

    failure_group = models.ForeignKey(
        FailureGroup, on_delete=models.PROTECT, related_name="tickets"
    )
    status = models.CharField(max_length=24, default="NEW")

    class Meta:
        db_table = "dlq_admin_ticket"
        default_permissions = ()
        permissions = [
            (name, name.replace("_", " "))
            for name in (
                "view_dlq", "triage_ticket", "classify_ticket", "close_ticket", "discard_message",
                "approve_discard", "plan_replay", "request_replay", "approve_replay",
                "second_level", "pause_replay", "resume_replay", "abort_replay", "view_payload",
                "view_audit", "export_audit",
            )
        ]  # fmt: skip

    def __str__(self) -> str:
        return f"ticket {self.pk}"
