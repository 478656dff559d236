"""What the logged-in person may do, and which roles could."""

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from dlq_admin import permissions
from dlq_admin.pages import shell
from dlq_admin.pages.acts import roles_with
from dlq_admin.pages.guard import acting_user, staff_page


@staff_page
def me(request: HttpRequest) -> HttpResponse:
    """Show one's own permissions. Every member of staff may."""
    user = acting_user(request)
    mine = user.groups.filter(name__in=list(permissions.ROLES)).values_list("name", flat=True)
    rows = [
        {
            "codename": permissions.codename(permission),
            "label": label,
            "mine": user.has_perm(permission),
            "roles": roles_with(permission),
        }
        for permission, label in permissions.PERMISSIONS.items()
    ]
    context = shell.context(
        request, here="me", title="My permissions", rows=rows, roles=sorted(mine)
    )
    return TemplateResponse(request, "dlq_admin/me.html", context)
