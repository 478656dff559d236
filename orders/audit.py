"""What an operator did to one row, kept in Django's own admin log, in the caller's transaction.

For acts whose row has no columns for who and why; the admin shows it as the row's history.
"""

from typing import TYPE_CHECKING

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser, AnonymousUser


def record(
    model: type[Model], key: str, *, user: "AbstractBaseUser | AnonymousUser", text: str
) -> None:
    """Write down what a person did to a row. Cost: one statement."""
    LogEntry.objects.create(
        user_id=user.pk,  # type: ignore[misc]  # whoever has a permission is a row
        content_type=ContentType.objects.get_for_model(model),
        object_id=key,
        object_repr=key[:200],
        action_flag=CHANGE,
        change_message=text,
    )


def records_of(model: type[Model], key: str) -> list[LogEntry]:
    """Return what people did to a row, oldest first. Cost: one statement."""
    return list(
        LogEntry.objects.select_related("user")
        .filter(content_type=ContentType.objects.get_for_model(model), object_id=key)
        .order_by("action_time")
    )
