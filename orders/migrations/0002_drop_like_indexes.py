"""Drop the pattern indexes that Django adds to text keys.

The columns have collation C: their plain indexes serve LIKE 'ord_…%' as well, and each index less
is one write less in the order transaction.
"""

from django.db import migrations

_DROP = """
DO $$
DECLARE name text;
BEGIN
  FOR name IN
    SELECT indexname FROM pg_indexes
     WHERE schemaname = current_schema()
       AND tablename IN ('orders_order', 'orders_item', 'orders_reservation', 'orders_extension')
       AND indexname LIKE '%_like'
  LOOP
    EXECUTE format('DROP INDEX %I', name);
  END LOOP;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("orders", "0001_initial")]

    operations = [migrations.RunSQL(_DROP, migrations.RunSQL.noop)]
