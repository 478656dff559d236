"""People of the desk for dead messages: one of each role, with a new password each run."""

import secrets
from dataclasses import dataclass
from typing import Final

from django.contrib.auth.models import Group, User

# Name of the user → group that a migration of the console made.
ROLES: Final = {
    "olga": "dlq operator",
    "anton": "dlq approver",
    "lea": "dlq incident lead",
    "vera": "dlq viewer",
    "aude": "dlq auditor",
}
DOES: Final = {
    "olga": "takes tickets, plans, asks for approval",
    "anton": "approves what others planned",
    "lea": "second level: edits, extensions, more than 20 messages",
    "vera": "reads, payloads masked",
    "aude": "reads all, verifies and exports the audit record",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Person:
    """A seeded user."""

    name: str
    role: str
    password: str
    does: str


def seed_people() -> list[Person]:
    """Make or renew the users. Repeatable."""
    people = []
    for name, role in ROLES.items():
        password = secrets.token_urlsafe(9)
        user, _ = User.objects.get_or_create(username=name, defaults={"is_staff": True})
        user.is_staff = True
        user.set_password(password)
        user.save()
        user.groups.set([Group.objects.get(name=role)])
        people.append(Person(name=name, role=role, password=password, does=DOES[name]))
    return people
