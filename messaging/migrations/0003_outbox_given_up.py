from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("messaging", "0002_event_archive")]

    operations = [
        # A handful of rows among days of sent ones, and the first that operators look for.
        migrations.RunSQL(
            sql="CREATE INDEX messaging_outbox_given_up_idx ON messaging_outbox (id) WHERE state = 2",
            reverse_sql="DROP INDEX messaging_outbox_given_up_idx",
        ),
    ]
