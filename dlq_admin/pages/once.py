"""A form is carried out once: its key is written before the service is called.

A service that refuses gives the key back, so that the corrected form may use it. A process that
dies in between leaves the key: the reloaded page draws a new one and shows what was done.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from django.db import connection
from django.utils import timezone

from dlq_admin.models.submission import Submission

if TYPE_CHECKING:
    from django.contrib.auth.models import User

_CLAIM: Final = """
INSERT INTO dlq_submission (key, user_id, action) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING
"""


class AlreadySent(Exception):
    """This form was carried out before."""


@contextmanager
def once(*, key: str, user: "User", action: str) -> Iterator[None]:
    """Run the block for the first of all submissions with this key.

    Raises:
        AlreadySent: it is not the first.

    Cost: one statement, one more when the block raises.
    """
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, [key, user.pk, action])
        if not cursor.rowcount:
            raise AlreadySent
    try:
        yield
    except Exception:
        Submission.objects.filter(key=key).delete()
        raise


def forget_submissions(*, days: int = 7) -> int:
    """Delete keys that nobody can send again; returns how many."""
    old = Submission.objects.filter(created_at__lt=timezone.now() - timedelta(days=days))
    return old.delete()[0]
