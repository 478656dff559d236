"""When a mark moved was written each second, and read by nobody."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("inventory", "0003_admission_options")]

    operations = [migrations.RemoveField(model_name="gatemark", name="moved_at")]
