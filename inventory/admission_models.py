"""Who may try to buy: a sale's admission options, and buyers who may not."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class AdmissionOptions(models.Model):
    """Options of one sale; without a row every logged-in buyer may try."""

    activity = models.OneToOneField(
        "inventory.Activity", on_delete=models.CASCADE, primary_key=True, related_name="admission"
    )
    token_required = models.BooleanField(
        default=False,
        help_text="A buyer needs a one-time purchase token. Buyers who hold a reservation do not.",
    )
    tokens_per_unit = models.DecimalField(
        max_digits=6,
        decimal_places=2,
        default=2,
        help_text="At most this many valid tokens for each unit of stock.",
    )
    token_lifetime_s = models.PositiveIntegerField(default=300)
    captcha_required = models.BooleanField(
        default=False, help_text="Asked for when a token is issued; needs SECKILL_CAPTCHA."
    )

    class Meta:
        """Bounds of the numbers."""

        verbose_name_plural = "admission options"
        constraints = [
            models.CheckConstraint(
                condition=Q(tokens_per_unit__gt=0), name="inventory_admission_tokens_ck"
            ),
            models.CheckConstraint(
                condition=Q(token_lifetime_s__gte=1, token_lifetime_s__lte=86_400),
                name="inventory_admission_lifetime_ck",
            ),
            models.CheckConstraint(
                condition=Q(captcha_required=False) | Q(token_required=True),
                name="inventory_admission_captcha_ck",
                violation_error_message="A captcha is asked for with the token: require both.",
            ),
        ]

    def __str__(self) -> str:
        return f"admission of activity {self.activity_id}"


class DenyEntry(models.Model):
    """A buyer who may reserve nothing: in one sale, or anywhere. What he holds stays his."""

    user_id = models.CharField(max_length=64)
    activity = models.ForeignKey(
        "inventory.Activity",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="denied",
        help_text="Empty: in every sale.",
    )
    reason = models.CharField(max_length=200)
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Empty: for ever.")
    created_by = models.CharField(max_length=150, blank=True, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        """One entry a buyer and sale."""

        verbose_name = "denied buyer"
        constraints = [
            models.UniqueConstraint(
                fields=["user_id", "activity"],
                nulls_distinct=False,
                name="inventory_denyentry_user_activity_uniq",
            )
        ]

    def __str__(self) -> str:
        return f"{self.user_id} ({self.activity_id or 'every sale'})"
