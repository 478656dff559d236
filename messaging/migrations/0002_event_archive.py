from pathlib import Path

import django.db.models.functions.datetime
from django.db import migrations, models

from ._first_days import make_first_days

_TABLE = Path(__file__).resolve().parent.parent / "sql" / "0002_event_archive.sql"


def make_days(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        make_first_days(cursor, "messaging_event_archive")


class Migration(migrations.Migration):
    dependencies = [("messaging", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="ArchivedEvent",
            fields=[
                ("event_id", models.TextField(db_collation="C", primary_key=True, serialize=False)),
                ("topic", models.TextField()),
                ("tag", models.TextField()),
                ("aggregate_id", models.TextField(db_collation="C")),
                ("aggregate_version", models.IntegerField()),
                ("activity_id", models.BigIntegerField()),
                ("occurred_at", models.DateTimeField()),
                (
                    "received_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("keys", models.TextField(default="")),
                ("properties", models.JSONField(default=dict)),
                ("body", models.BinaryField()),
            ],
            options={
                "db_table": "messaging_event_archive",
                "managed": False,
                "verbose_name": "archived event",
            },
        ),
        migrations.RunSQL(
            sql=_TABLE.read_text(),
            reverse_sql=(
                "DROP TABLE messaging_event_archive;"
                " DROP FUNCTION messaging_event_archive_refuse();"
            ),
        ),
        migrations.RunPython(make_days, migrations.RunPython.noop),
    ]
