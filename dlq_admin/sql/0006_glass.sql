-- Broken glass: a plan that was started before its approval. Written once; only its end is added.

CREATE FUNCTION dlq_admin_glass_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    batch dlq_admin_replay_batch%ROWTYPE;
BEGIN
    IF TG_OP = 'INSERT' THEN
        SELECT * INTO batch FROM dlq_admin_replay_batch WHERE id = NEW.batch_id FOR UPDATE;
        IF batch.status <> 'PENDING_APPROVAL' OR batch.expires_at <= clock_timestamp()
            OR batch.plan_hash <> NEW.plan_hash OR batch.disposition = 'DISCARD'
        THEN
            RAISE EXCEPTION 'the glass of batch % cannot be broken', NEW.batch_id
                USING ERRCODE = 'check_violation', CONSTRAINT = 'dlq_admin_break_glass_waits_ck';
        END IF;
        NEW.broken_at := clock_timestamp();
        NEW.due_at := NEW.broken_at + interval '1 hour';
        NEW.approved_at := NULL;
        RETURN NEW;
    END IF;
    IF (NEW.id, NEW.batch_id, NEW.user_id, NEW.plan_hash, NEW.reason, NEW.broken_at, NEW.due_at)
        IS DISTINCT FROM
       (OLD.id, OLD.batch_id, OLD.user_id, OLD.plan_hash, OLD.reason, OLD.broken_at, OLD.due_at)
        OR OLD.approved_at IS NOT NULL OR NEW.approved_at IS NULL
    THEN
        RAISE EXCEPTION 'broken glass stays broken'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'dlq_admin_break_glass_frozen_ck';
    END IF;
    IF dlq_admin_approvals_missing(NEW.batch_id) <> '' THEN
        RAISE EXCEPTION 'batch % has %', NEW.batch_id, dlq_admin_approvals_missing(NEW.batch_id)
            USING ERRCODE = 'check_violation', CONSTRAINT = 'dlq_admin_batch_approvals_ck';
    END IF;
    NEW.approved_at := clock_timestamp();
    RETURN NEW;
END $$;
CREATE TRIGGER dlq_admin_break_glass_guard
    BEFORE INSERT OR UPDATE ON dlq_admin_break_glass
    FOR EACH ROW EXECUTE FUNCTION dlq_admin_glass_guard();
CREATE TRIGGER dlq_admin_break_glass_no_delete
    BEFORE DELETE ON dlq_admin_break_glass
    FOR EACH ROW EXECUTE FUNCTION dlq_admin_append_only();
CREATE TRIGGER dlq_admin_break_glass_no_truncate
    BEFORE TRUNCATE ON dlq_admin_break_glass
    FOR EACH STATEMENT EXECUTE FUNCTION dlq_admin_append_only();
