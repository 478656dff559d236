-- Who must say yes to a plan, and that they did: before it starts, or within the hour when somebody
-- broke the glass.

-- An approval is given to a plan that waits for it and has not expired, or afterwards to one that
-- was started behind broken glass: by another person than the one who broke it, and after the hour
-- by an incident lead only.
CREATE OR REPLACE FUNCTION dlq_admin_approval_check() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    batch dlq_admin_replay_batch%ROWTYPE;
    glass record;
BEGIN
    SELECT * INTO batch FROM dlq_admin_replay_batch WHERE id = NEW.batch_id FOR UPDATE;
    SELECT * INTO glass FROM dlq_admin_break_glass
     WHERE batch_id = NEW.batch_id AND approved_at IS NULL;
    IF FOUND THEN
        IF NEW.approver_id = glass.user_id THEN
            RAISE EXCEPTION 'whoever broke the glass of batch % cannot approve it', NEW.batch_id
                USING ERRCODE = 'check_violation', CONSTRAINT = 'dlq_admin_approval_glass_ck';
        END IF;
        IF glass.due_at <= clock_timestamp() AND NOT NEW.lead THEN
            RAISE EXCEPTION 'the hour of batch % has passed', NEW.batch_id
                USING ERRCODE = 'check_violation', CONSTRAINT = 'dlq_admin_approval_hour_ck';
        END IF;
    ELSIF batch.status <> 'PENDING_APPROVAL' OR batch.expires_at <= clock_timestamp() THEN
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

-- What the approval of a batch lacks, in words; empty when it is complete.
CREATE OR REPLACE FUNCTION dlq_admin_approvals_missing(wanted bigint) RETURNS text
    LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN given.people < needed.people
                THEN given.people || ' of ' || needed.people || ' approvals'
                WHEN needed.lead AND NOT given.lead THEN 'no incident lead''s approval'
                ELSE '' END
    FROM dlq_admin_replay_batch AS batch
    CROSS JOIN LATERAL dlq_admin_approvals_needed(batch.id, batch.extension_s) AS needed
    CROSS JOIN LATERAL (
        SELECT count(*) AS people, coalesce(bool_or(lead), false) AS lead
        FROM dlq_admin_approval
        WHERE batch_id = batch.id AND plan_hash = batch.plan_hash
    ) AS given
    WHERE batch.id = wanted
$$;

CREATE OR REPLACE FUNCTION dlq_admin_batch_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    lacks text;
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
        lacks := dlq_admin_approvals_missing(NEW.id);
        IF NEW.expires_at <= clock_timestamp() OR lacks <> '' AND NOT EXISTS (
            SELECT FROM dlq_admin_break_glass
             WHERE batch_id = NEW.id AND plan_hash = NEW.plan_hash
        ) THEN
            RAISE EXCEPTION 'batch % has %', NEW.id, lacks
                USING ERRCODE = 'check_violation', CONSTRAINT = 'dlq_admin_batch_approvals_ck';
        END IF;
    END IF;
    RETURN NEW;
END $$;
