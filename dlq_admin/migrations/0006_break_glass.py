"""Broken glass: plans that start before their approval. Two columns that nothing read are gone."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

SQL = Path(__file__).resolve().parent.parent / "sql"


class Migration(migrations.Migration):

    dependencies = [
        ('dlq_admin', '0005_no_replay_count'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='ticket',
            options={'default_permissions': (), 'permissions': [('view_console', 'Can see the DLQ console'), ('view_payload_masked', 'Can see payloads with personal data masked'), ('view_payload_limited', 'Can see payloads without masking of business ids'), ('view_payload_full', 'Can see full payloads; every look is audited'), ('triage_ticket', 'Can acknowledge, assign, merge, park and reopen tickets'), ('classify_ticket', 'Can decide on cause, disposition and readiness'), ('close_ticket', 'Can close a verified ticket'), ('discard_message', 'Can ask for messages to be discarded'), ('approve_discard', 'Can approve a discard somebody else asked for'), ('plan_replay', 'Can plan a replay (dry run)'), ('edit_payload', 'Can edit a dead message before its replay'), ('request_replay', 'Can ask for a plan to be approved'), ('approve_replay', 'Can approve a plan somebody else asked for'), ('approve_second_level', 'Can give the second approval'), ('pause_replay', 'Can pause a batch and change its rate'), ('resume_replay', 'Can resume a paused batch'), ('abort_replay', 'Can abort a batch'), ('override_replay', 'Can approve a third replay of a message, or one past its end'), ('break_glass', 'Can start a plan at once and be approved within the hour'), ('view_audit', 'Can read the audit trail'), ('export_audit', 'Can export the audit trail'), ('verify_audit', 'Can verify the audit chain')]},
        ),
        migrations.RemoveField(
            model_name='replayitem',
            name='processed_at',
        ),
        migrations.RemoveField(
            model_name='ticket',
            name='fix_begun_at',
        ),
        migrations.AlterField(
            model_name='slaclock',
            name='kind',
            field=models.CharField(choices=[('ACK', 'ACK'), ('PLAN', 'PLAN'), ('APPROVE', 'APPROVE'), ('RESOLVE', 'RESOLVE'), ('GLASS', 'GLASS')], max_length=8),
        ),
        migrations.CreateModel(
            name='BreakGlass',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('plan_hash', models.CharField(max_length=64)),
                ('reason', models.TextField()),
                ('broken_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('due_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('approved_at', models.DateTimeField(null=True)),
                ('batch', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='glass', to='dlq_admin.replaybatch')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name_plural': 'broken glass',
                'db_table': 'dlq_admin_break_glass',
                'default_permissions': (),
                'indexes': [models.Index(condition=models.Q(('approved_at__isnull', True)), fields=['due_at'], name='dlq_admin_break_glass_owed_idx')],
                'constraints': [models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='dlq_admin_break_glass_reason_ck')],
            },
        ),
        # Replaces what 0002 made.
        migrations.RunSQL(
            sql=(SQL / "0006_approvals.sql").read_text(encoding="utf-8"),
            reverse_sql=(SQL / "0002_approvals.sql").read_text(encoding="utf-8")
            + "DROP FUNCTION dlq_admin_approvals_missing(bigint);",
        ),
        migrations.RunSQL(
            sql=(SQL / "0006_glass.sql").read_text(encoding="utf-8"),
            reverse_sql="DROP FUNCTION dlq_admin_glass_guard CASCADE;",
        ),
    ]
