-- Who must say yes to a plan, and that they did, as migration 0002 made it and the way back from
-- 0006 makes it again.

-- An approval is given to a plan that waits for it and has not expired.
CREATE OR REPLACE FUNCTION dlq_admin_approval_check() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    batch dlq_admin_replay_batch%ROWTYPE;
BEGIN
    SELECT * INTO batch FROM dlq_admin_replay_batch WHERE id = NEW.batch_id FOR UPDATE;
    IF batch.status <> 'PENDING_APPROVAL' OR batch.expires_at <= clock_timestamp() THEN
        RAISE EXCEPTION 'batch % does not wait for approval', NEW.batch_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'dlq_admin_approval_waits_ck';
    END IF;
    RETURN NEW;
END $$;

-- How many approvals a batch needs, and whether one must be an incident lead's.
CREATE OR REPLACE FUNCTION dlq_admin_approvals_needed(
    wanted bigint, extension_s integer, OUT people integer, OUT lead boolean
) LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN count(*) > 20 OR count(*) FILTER (WHERE edit_diff IS NOT NULL) > 0
                THEN 2 ELSE 1 END,
        count(*) FILTER (WHERE edit_diff IS NOT NULL) > 0
            OR count(*) FILTER (WHERE replay_count >= 3) > 0 OR extension_s > 0 OR count(*) > 20
    FROM dlq_admin_replay_item WHERE batch_id = wanted AND status <> 'BLOCKED'
$$;

CREATE OR REPLACE FUNCTION dlq_admin_batch_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    needed record;
    given record;
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.status <> 'DRAFT' THEN
            RAISE EXCEPTION 'a batch begins as a draft'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'dlq_admin_batch_jump_ck';
        END IF;
        RETURN NEW;
    END IF;
    IF OLD.status <> 'DRAFT' AND (
        NEW.ticket_id, NEW.consumer_group, NEW.disposition, NEW.items_total, NEW.plan_hash,
        NEW.rate_cap, NEW.canary_size, NEW.extension_s, NEW.requested_by_id, NEW.edited_by_id,
        NEW.expires_at, NEW.selection, NEW.reason, NEW.idempotency_key
    ) IS DISTINCT FROM (
        OLD.ticket_id, OLD.consumer_group, OLD.disposition, OLD.items_total, OLD.plan_hash,
        OLD.rate_cap, OLD.canary_size, OLD.extension_s, OLD.requested_by_id, OLD.edited_by_id,
        OLD.expires_at, OLD.selection, OLD.reason, OLD.idempotency_key
    ) THEN
        RAISE EXCEPTION 'the plan of batch % is frozen', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'dlq_admin_batch_frozen_ck';
    END IF;
    IF NEW.status = OLD.status THEN
        RETURN NEW;
    END IF;
    IF NOT EXISTS (
        SELECT FROM dlq_admin_transition
         WHERE entity = 'batch' AND from_status = OLD.status AND to_status = NEW.status
    ) THEN
        RAISE EXCEPTION 'batch % cannot go from % to %', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'dlq_admin_batch_jump_ck';
    END IF;
    IF NEW.status = 'APPROVED' THEN
        SELECT * INTO needed FROM dlq_admin_approvals_needed(NEW.id, NEW.extension_s);
        SELECT count(*) AS people, coalesce(bool_or(lead), false) AS lead INTO given
          FROM dlq_admin_approval WHERE batch_id = NEW.id AND plan_hash = NEW.plan_hash;
        IF given.people < needed.people OR (needed.lead AND NOT given.lead)
            OR NEW.expires_at <= clock_timestamp()
        THEN
            RAISE EXCEPTION 'batch % has % of % approvals', NEW.id, given.people, needed.people
                USING ERRCODE = 'check_violation', CONSTRAINT = 'dlq_admin_batch_approvals_ck';
        END IF;
    END IF;
    RETURN NEW;
END $$;
