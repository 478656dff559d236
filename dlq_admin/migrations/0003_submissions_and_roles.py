"""Keys of forms that were sent, and the roles of the desk as groups of users."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

from dlq_admin.permissions import PERMISSIONS, ROLES, VIEW_CONSOLE, codename

# What processes do under a name of their own; nobody logs in with it.
SYSTEM_ROLE = {"dlq system": frozenset({VIEW_CONSOLE})}


def make_roles(apps, schema_editor):
    """Make the groups; what an administrator has added to them stays."""
    Group = apps.get_model("auth", "Group")
    Permission = apps.get_model("auth", "Permission")
    ContentType = apps.get_model("contenttypes", "ContentType")
    # Permissions are usually made after all migrations; the roles need them now.
    kind, _ = ContentType.objects.get_or_create(app_label="dlq_admin", model="ticket")
    for name, wanted in {**ROLES, **SYSTEM_ROLE}.items():
        group, _ = Group.objects.get_or_create(name=name)
        for permission in sorted(wanted):
            row, _ = Permission.objects.get_or_create(
                content_type=kind,
                codename=codename(permission),
                defaults={"name": PERMISSIONS[permission]},
            )
            group.permissions.add(row)


class Migration(migrations.Migration):
    dependencies = [
        ("dlq_admin", "0002_audit_and_replay"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Submission",
            fields=[
                ("key", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("action", models.CharField(max_length=40)),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "dlq_submission",
                "default_permissions": (),
                "indexes": [models.Index(fields=["created_at"], name="dlq_submission_at_idx")],
            },
        ),
        migrations.RunPython(make_roles, migrations.RunPython.noop),
    ]
