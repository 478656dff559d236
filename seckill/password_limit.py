"""How often a password may be guessed: one count for the API, the pages and the admin."""

import hashlib
from typing import Any, Final

import structlog
from django.contrib.admin.forms import AdminAuthenticationForm
from django.core.cache import cache
from django.core.exceptions import ValidationError
from redis.exceptions import RedisError

log = structlog.get_logger(__name__)

WINDOW_S: Final = 60
TOO_MANY: Final = "Too many attempts with this name. Wait a minute, then try again."
_GUESSES: Final = 10


def may_guess(username: str) -> bool:
    """Count one guess at an account's password, whatever address it comes from.

    Args:
        username: the name as `authenticate` will get it. Case matters, as it does there.

    Returns:
        False when the account had its ten guesses of this minute. True when the cache is away:
        operators must be able to log in and stop a sale then. Cost: two commands in the cache.
    """
    # Hashed: no name is too long or too strange for a key then.
    key = f"password:{hashlib.sha256(username.encode()).hexdigest()}"
    try:
        cache.add(key, 0, timeout=WINDOW_S)
        # Counted before it is judged: guesses that come at the same time all count.
        return cache.incr(key) <= _GUESSES
    except ValueError:
        return True  # the minute ended between the two commands
    except RedisError as error:
        log.error("password_limit_unavailable", error=type(error).__name__)
        return True


class LimitedAdminLoginForm(AdminAuthenticationForm):
    """The admin's log-in, with the limit."""

    def clean(self) -> dict[str, Any]:
        """Count the guess before the password is looked at."""
        username = self.cleaned_data.get("username")
        if username and not may_guess(username):
            raise ValidationError(TOO_MANY, code="throttled")
        return super().clean()
