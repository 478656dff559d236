"""Who may watch: staff with the permission to see sales; asked with a session, not a request."""

from importlib import import_module
from typing import Final

from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest

PERMISSION: Final = "inventory.view_activity"
WORKERS_PERMISSION: Final = "messaging.view_heartbeat"


def may_watch(session_key: str) -> bool:
    """Tell whether a session belongs to somebody who may watch.

    Args:
        session_key: of the cookie; whatever it is.

    Cost: the session and the user, and for users without all rights two statements more.
    """
    if not session_key:
        return False
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user(request)
    return user.is_active and user.is_staff and user.has_perm(PERMISSION)
