
from pathlib import Path

import django.db.models.functions.datetime
from django.db import migrations, models

from ._first_days import make_first_days

_TABLES = Path(__file__).resolve().parent.parent / "sql" / "0001_partitioned_tables.sql"


def make_days(apps, schema_editor):
    """The first window of days; the Celery schedule keeps it ahead."""
    with schema_editor.connection.cursor() as cursor:
        make_first_days(cursor, "messaging_inbox")
        make_first_days(cursor, "messaging_outbox", by_time=True)


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='InboxRow',
            fields=[
                ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('consumer_group', models.TextField(db_collation='C')),
                ('message_id', models.TextField(db_collation='C')),
                ('outcome', models.TextField(choices=[('CREATED', 'Created'), ('REJECTED', 'Rejected'), ('APPLIED', 'Applied'), ('STALE_NOOP', 'Stale Noop')])),
                ('reason', models.TextField(default='')),
                ('reservation_id', models.TextField(db_collation='C', default='')),
                ('order_id', models.TextField(db_collation='C', default='')),
                ('delivery_attempt', models.IntegerField(default=1)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'messaging_inbox',
                'managed': False,
            },
        ),
        migrations.CreateModel(
            name='OutboxRow',
            fields=[
                ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('topic', models.TextField()),
                ('tag', models.TextField()),
                ('event_id', models.TextField(db_collation='C')),
                ('keys', models.TextField()),
                ('payload', models.TextField()),
                ('properties', models.JSONField(default=dict)),
                ('lane', models.SmallIntegerField()),
                ('deliver_at_ms', models.BigIntegerField(null=True)),
                ('state', models.SmallIntegerField(default=0)),
                ('available_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('attempts', models.IntegerField(default=0)),
                ('max_attempts', models.IntegerField(default=20)),
                ('claim_token', models.UUIDField(null=True)),
                ('replay_id', models.TextField(default='')),
                ('last_error', models.TextField(default='')),
                ('sent_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'messaging_outbox',
                'managed': False,
            },
        ),
        migrations.CreateModel(
            name='GroupPause',
            fields=[
                ('consumer_group', models.CharField(max_length=120, primary_key=True, serialize=False)),
                ('reason', models.TextField()),
                ('paused_by', models.CharField(max_length=150)),
                ('paused_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'permissions': [('resume_group', 'Can let a paused group receive again')],
            },
        ),
        migrations.CreateModel(
            name='Heartbeat',
            fields=[
                ('worker_id', models.CharField(max_length=120, primary_key=True, serialize=False)),
                ('role', models.CharField(max_length=40)),
                ('group', models.CharField(default='', max_length=120)),
                ('build', models.IntegerField(default=1)),
                ('version', models.CharField(default='', max_length=40)),
                ('started_at', models.DateTimeField()),
                ('beat_at', models.DateTimeField()),
                ('state', models.CharField(default='RUNNING', max_length=24)),
                ('detail', models.JSONField(default=dict)),
            ],
        ),
        migrations.CreateModel(
            name='QuarantineRow',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('consumer_group', models.CharField(max_length=120)),
                ('message_id', models.CharField(max_length=64)),
                ('source', models.CharField(choices=[('CONSUMER', 'Consumer'), ('OUTBOX', 'Outbox'), ('DLQ', 'Dlq')], max_length=12)),
                ('status', models.CharField(choices=[('OPEN', 'Open'), ('RESOLVED', 'Resolved')], default='OPEN', max_length=12)),
                ('topic', models.CharField(max_length=120)),
                ('tag', models.CharField(default='', max_length=64)),
                ('keys', models.TextField(default='')),
                ('properties', models.JSONField(default=dict)),
                ('body', models.BinaryField()),
                ('body_sha256', models.CharField(max_length=64)),
                ('reason', models.CharField(max_length=64)),
                ('error', models.TextField(default='')),
                ('delivery_attempt', models.IntegerField(default=1)),
                ('occurrences', models.IntegerField(default=1)),
                ('reservation_id', models.CharField(db_index=True, max_length=40, null=True)),
                ('activity_id', models.BigIntegerField(null=True)),
                ('sku_id', models.BigIntegerField(null=True)),
                ('user_id', models.CharField(max_length=64, null=True)),
                ('quantity', models.IntegerField(null=True)),
                ('valid_until', models.DateTimeField(null=True)),
                ('first_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('last_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('resolved_at', models.DateTimeField(null=True)),
                ('resolution', models.CharField(default='', max_length=64)),
            ],
            options={
                'db_table': 'messaging_quarantine',
                'indexes': [models.Index(condition=models.Q(('status', 'OPEN')), fields=['consumer_group', 'message_id'], name='messaging_quarantine_open_idx')],
                'constraints': [models.UniqueConstraint(fields=('consumer_group', 'message_id', 'body_sha256'), name='messaging_quarantine_message_uniq'), models.CheckConstraint(condition=models.Q(models.Q(('resolved_at__isnull', True), ('status', 'OPEN')), models.Q(('resolved_at__isnull', False), ('status', 'RESOLVED')), _connector='OR'), name='messaging_quarantine_resolved_ck')],
            },
        ),
        # The tables of the two unmanaged models: Django cannot say PARTITION BY.
        migrations.RunSQL(
            sql=_TABLES.read_text(),
            reverse_sql="DROP TABLE messaging_outbox; DROP TABLE messaging_inbox;",
        ),
        migrations.RunPython(make_days, migrations.RunPython.noop),
    ]
