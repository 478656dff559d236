"""How the admin names what it lists: nothing in the database changes."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("dlq_admin", "0003_submissions_and_roles")]

    operations = [
        migrations.AlterModelOptions(name="dlqmessage", options={"verbose_name": "dead message"}),
        migrations.AlterModelOptions(name="dlqoccurrence", options={"verbose_name": "death"}),
        migrations.AlterModelOptions(
            name="replaybatch",
            options={"default_permissions": (), "verbose_name_plural": "replay batches"},
        ),
        migrations.AlterModelOptions(name="slaclock", options={"verbose_name": "SLA clock"}),
    ]
