"""May this user? Asked in every service, per row; a page that hides a button protects nothing."""

from typing import TYPE_CHECKING

from django.core.exceptions import PermissionDenied

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def has(user: "User", permission: str) -> bool:
    """Tell whether a user may."""
    return bool(user.is_active and user.has_perm(permission))


def require(user: "User", permission: str) -> None:
    """Raise PermissionDenied unless the user may."""
    if not has(user, permission):
        raise PermissionDenied(permission)
