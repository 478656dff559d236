"""Tickets and their SLA clocks. The audit trail is the ticket's history; this is its state."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from dlq_admin.models.message import FailureGroup
from dlq_admin.permissions import PERMISSIONS, codename
from dlq_admin.states import TICKET_OPEN, Cause, Disposition, Severity, SlaKind, TicketStatus

_STATUS = [(status.value, status.value) for status in TicketStatus]
_SEVERITY = [(severity.value, severity.value) for severity in Severity]
_CAUSE = [(cause.value, cause.value) for cause in Cause]
_DISPOSITION = [(disposition.value, disposition.value) for disposition in Disposition]
_SLA = [(kind.value, kind.value) for kind in SlaKind]
OPEN = Q(status__in=sorted(status.value for status in TICKET_OPEN))
_UNOWNED = ["NEW", "WAITING", "MERGED", "REOPENED"]
_BY_ITSELF = Q(status="CLOSED", closed_by__isnull=True)  # all its messages settled
_DECIDED = ["FIXING", "READY", "REPLAYING", "VERIFYING", "CLOSED", "CLASSIFIED"]
_DISCARDING = ["DISCARD_PENDING", "DISCARDED"]


class Ticket(models.Model):
    """What a person works on: everything that died of one thing."""

    failure_group = models.ForeignKey(
        FailureGroup, on_delete=models.PROTECT, related_name="tickets", db_index=False
    )
    title = models.CharField(max_length=200)
    status = models.CharField(max_length=16, choices=_STATUS, default=TicketStatus.NEW)
    severity = models.CharField(max_length=4, choices=_SEVERITY)
    in_sale = models.BooleanField(default=False)  # opened in a sale's window: the tight SLA
    activity_id = models.BigIntegerField(null=True)  # sale of its first message
    owner = models.CharField(max_length=80)  # team, by rule
    assignee = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True
    )
    message_count = models.IntegerField(default=0)  # ever attached
    last_message_at = models.DateTimeField(db_default=Now())
    opened_at = models.DateTimeField(db_default=Now())
    status_at = models.DateTimeField(db_default=Now())  # since when it is in this state

    cause = models.CharField(max_length=16, choices=_CAUSE, default="", blank=True)
    disposition = models.CharField(max_length=16, choices=_DISPOSITION, default="", blank=True)
    analysis = models.TextField(default="", blank=True)
    fix_reference = models.CharField(max_length=200, default="", blank=True)
    fix_build = models.IntegerField(null=True)  # the first SECKILL_BUILD that has the fix

    waiting_from = models.CharField(max_length=16, choices=_STATUS, default="", blank=True)
    waiting_until = models.DateTimeField(null=True)
    waiting_reason = models.TextField(default="", blank=True)

    discard_requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True
    )
    discard_reason = models.TextField(default="", blank=True)
    discard_approved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True
    )

    merged_into = models.ForeignKey(
        "self", on_delete=models.PROTECT, related_name="merged", null=True
    )
    closed_at = models.DateTimeField(null=True)
    closed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True
    )
    reopened_count = models.IntegerField(default=0)
    version = models.IntegerField(default=1)  # + 1 with every change of state

    class Meta:
        db_table = "dlq_ticket"
        default_permissions = ()
        permissions = [(codename(name), text) for name, text in PERMISSIONS.items()]
        constraints = [
            models.UniqueConstraint(
                fields=["failure_group"], condition=OPEN, name="dlq_ticket_open_uniq"
            ),
            models.CheckConstraint(
                condition=Q(status__in=_UNOWNED) | Q(assignee__isnull=False) | _BY_ITSELF,
                name="dlq_ticket_assignee_ck",
            ),
            models.CheckConstraint(
                condition=~Q(status__in=_DECIDED + _DISCARDING)
                | ~Q(cause="") & ~Q(disposition="") & ~Q(analysis="")
                | _BY_ITSELF,
                name="dlq_ticket_classified_ck",
            ),
            models.CheckConstraint(
                condition=Q(status="WAITING", waiting_until__isnull=False) & ~Q(waiting_from="")
                | ~Q(status="WAITING") & Q(waiting_from="", waiting_until__isnull=True),
                name="dlq_ticket_waiting_ck",
            ),
            models.CheckConstraint(
                condition=Q(status="MERGED", merged_into__isnull=False)
                | ~Q(status="MERGED") & Q(merged_into__isnull=True),
                name="dlq_ticket_merged_ck",
            ),
            models.CheckConstraint(
                condition=Q(status__in=["CLOSED", "DISCARDED"], closed_at__isnull=False)
                | ~Q(status__in=["CLOSED", "DISCARDED"]) & Q(closed_at__isnull=True),
                name="dlq_ticket_closed_ck",
            ),
            # Two people, whatever the code above believes.
            models.CheckConstraint(
                condition=~Q(status__in=_DISCARDING) | Q(discard_requested_by__isnull=False),
                name="dlq_ticket_discard_asked_ck",
            ),
            models.CheckConstraint(
                condition=~Q(status="DISCARDED") | Q(discard_approved_by__isnull=False),
                name="dlq_ticket_discard_approved_ck",
            ),
            models.CheckConstraint(
                condition=Q(discard_approved_by__isnull=True)
                | ~Q(discard_approved_by=F("discard_requested_by")),
                name="dlq_ticket_discard_two_people_ck",
            ),
        ]
        indexes = [
            models.Index(
                fields=["severity", "-last_message_at", "-id"],
                condition=OPEN,
                name="dlq_ticket_desk_idx",
            ),
            models.Index(fields=["status", "-id"], name="dlq_ticket_status_idx"),
            models.Index(fields=["failure_group", "-id"], name="dlq_ticket_failure_idx"),
            models.Index(
                fields=["waiting_until"],
                condition=Q(status="WAITING"),
                name="dlq_ticket_waiting_idx",
            ),
        ]

    def __str__(self) -> str:
        return f"DLQ-{self.pk}"


class SlaClock(models.Model):
    """One promise with a deadline. Stopped when it was kept, or when the ticket ended."""

    ticket = models.ForeignKey(Ticket, on_delete=models.PROTECT, related_name="clocks")
    kind = models.CharField(max_length=8, choices=_SLA)
    started_at = models.DateTimeField()
    remind_at = models.DateTimeField()  # half of the time is over
    due_at = models.DateTimeField()
    reminded_at = models.DateTimeField(null=True)
    breached_at = models.DateTimeField(null=True)
    stopped_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "dlq_sla_clock"
        verbose_name = "SLA clock"
        constraints = [
            models.UniqueConstraint(
                fields=["ticket", "kind"],
                condition=Q(stopped_at__isnull=True),
                name="dlq_sla_clock_running_uniq",
            ),
            models.CheckConstraint(
                condition=Q(started_at__lte=F("remind_at")) & Q(remind_at__lte=F("due_at")),
                name="dlq_sla_clock_order_ck",
            ),
        ]
        indexes = [
            models.Index(
                fields=["remind_at"],
                condition=Q(stopped_at__isnull=True, reminded_at__isnull=True),
                name="dlq_sla_clock_remind_idx",
            ),
            models.Index(
                fields=["due_at"],
                condition=Q(stopped_at__isnull=True, breached_at__isnull=True),
                name="dlq_sla_clock_due_idx",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of DLQ-{self.ticket_id}"
