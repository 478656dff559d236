"""The table of decisions."""

from django.db import models
from django.db.models.functions import Now

from seckill.governor.view import Level


class GovernorDecision(models.Model):
    """A decision that changed something; written by the governor, read by people."""

    decided_at = models.DateTimeField(db_default=Now())
    level = models.CharField(max_length=16, choices=[(level, level) for level in Level])
    before = models.CharField(max_length=16)
    entry_rate = models.FloatField()
    entry_burst = models.FloatField(default=0.0)
    max_open = models.IntegerField(default=0)
    max_pending = models.IntegerField(default=0)
    drain_per_s = models.FloatField(default=0.0)
    reasons = models.JSONField(default=list)
    groups = models.JSONField(default=dict)
    signals = models.JSONField(default=dict)
    leader = models.CharField(max_length=120, default="")

    class Meta:
        app_label = "seckill"
        db_table = "seckill_governor_decision"
        indexes = [models.Index(fields=["-decided_at"], name="seckill_governor_at_idx")]

    def __str__(self) -> str:
        return f"{self.decided_at:%H:%M:%S} {self.level}"
