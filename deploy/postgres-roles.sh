#!/bin/sh
# Run once, when the database is made: the role of the processes and a reading one; neither owns anything.
# `manage.py grant_roles` gives them their rights after every migrate.
set -eu
psql --set ON_ERROR_STOP=1 --set runtime="$RUNTIME_PASSWORD" --set auditor="$AUDITOR_PASSWORD" \
    --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
CREATE ROLE seckill_runtime LOGIN PASSWORD :'runtime';
CREATE ROLE seckill_auditor LOGIN PASSWORD :'auditor';
SQL
