"""Keys of forms that were sent, and the roles of the desk as groups of users."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

# As they were when this was written (the texts as 0006 reworded them). What a role gets or loses
# later, a later migration does; a test compares the outcome with dlq_admin/permissions.py.
PERMISSIONS = {
    "view_console": "Can see the DLQ console",
    "view_payload_masked": "Can see payloads with personal data masked",
    "view_payload_limited": "Can see payloads without masking of business ids",
    "view_payload_full": "Can see full payloads; every look is audited",
    "triage_ticket": "Can acknowledge, assign, merge, park and reopen tickets",
    "classify_ticket": "Can decide on cause, disposition and readiness",
    "close_ticket": "Can close a verified ticket",
    "discard_message": "Can ask for messages to be discarded",
    "approve_discard": "Can approve a discard somebody else asked for",
    "plan_replay": "Can plan a replay (dry run)",
    "edit_payload": "Can edit a dead message before its replay",
    "request_replay": "Can ask for a plan to be approved",
    "approve_replay": "Can approve a plan somebody else asked for",
    "approve_second_level": "Can give the second approval",
    "pause_replay": "Can pause a batch and change its rate",
    "resume_replay": "Can resume a paused batch",
    "abort_replay": "Can abort a batch",
    "override_replay": "Can approve a third replay of a message, or one past its end",
    "break_glass": "Can start a plan at once and be approved within the hour",
    "view_audit": "Can read the audit trail",
    "export_audit": "Can export the audit trail",
    "verify_audit": "Can verify the audit chain",
}
SEE = ("view_console", "view_payload_masked")
ROLES = {
    "dlq viewer": SEE,
    "dlq operator": (
        *SEE,
        *("view_payload_limited", "triage_ticket", "classify_ticket", "close_ticket"),
        *("discard_message", "plan_replay", "edit_payload", "request_replay"),
        *("pause_replay", "abort_replay"),
    ),
    "dlq approver": (
        *SEE,
        *("view_payload_limited", "approve_replay", "pause_replay", "view_audit"),
    ),
    "dlq incident lead": (
        *SEE,
        *("view_payload_limited", "view_payload_full", "triage_ticket", "classify_ticket"),
        *("close_ticket", "approve_discard", "approve_replay", "approve_second_level"),
        *("pause_replay", "resume_replay", "abort_replay", "override_replay"),
        *("break_glass", "view_audit"),
    ),
    "dlq auditor": (*SEE, "view_audit", "export_audit", "verify_audit"),
    # What processes do under a name of their own; nobody logs in with it.
    "dlq system": ("view_console",),
}


def make_roles(apps, schema_editor):
    """Make the groups; what an administrator has added to them stays."""
    Group = apps.get_model("auth", "Group")
    Permission = apps.get_model("auth", "Permission")
    ContentType = apps.get_model("contenttypes", "ContentType")
    # Permissions are usually made after all migrations; the roles need them now.
    kind, _ = ContentType.objects.get_or_create(app_label="dlq_admin", model="ticket")
    for name, wanted in ROLES.items():
        group, _ = Group.objects.get_or_create(name=name)
        for permission in sorted(wanted):
            row, _ = Permission.objects.get_or_create(
                content_type=kind,
                codename=permission,
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
