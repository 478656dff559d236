-- Rights of the three database roles. Run by `manage.py grant_roles` as the owner after every
-- migrate; names are put in by the command, roles that do not exist are left out.
--   owner    migrations, partitions, retention: everything
--   runtime  the processes: rows, but no DDL, and audit and approvals are insert-only
--   auditor  reads everything, changes nothing

-- name: runtime
GRANT USAGE ON SCHEMA public TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role};
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO {role};
REVOKE ALL ON dlq_admin_audit_event, dlq_admin_audit_anchor, dlq_admin_approval FROM {role};
GRANT SELECT, INSERT ON dlq_admin_audit_event, dlq_admin_audit_anchor, dlq_admin_approval TO {role};
REVOKE ALL ON dlq_admin_audit_head, dlq_admin_transition, django_migrations FROM {role};
GRANT SELECT ON dlq_admin_audit_head, dlq_admin_transition, django_migrations TO {role};
REVOKE DELETE ON dlq_admin_replay_batch, dlq_admin_replay_item, dlq_admin_dry_run,
    dlq_admin_invariant_run, dlq_admin_break_glass FROM {role};
REVOKE UPDATE, DELETE ON messaging_event_archive FROM {role};

-- name: auditor
GRANT USAGE ON SCHEMA public TO {role};
GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO {role};
