-- Replays: legal jumps, counted approvals, frozen plans. The services check the same first; this is
-- what holds when they do not. What approvals are counted by stands in *_approvals.sql.

CREATE TABLE dlq_admin_transition (
    entity text NOT NULL,
    from_status text NOT NULL,
    to_status text NOT NULL,
    PRIMARY KEY (entity, from_status, to_status)
);

-- Requester, editor and plan_hash of an approval are the batch's own, and stay so.
ALTER TABLE dlq_admin_approval ADD CONSTRAINT dlq_admin_approval_plan_fk
    FOREIGN KEY (batch_id, requested_by_id, edited_by_id, plan_hash)
    REFERENCES dlq_admin_replay_batch (id, requested_by_id, edited_by_id, plan_hash);

CREATE TRIGGER dlq_admin_approval_append_only
    BEFORE UPDATE OR DELETE ON dlq_admin_approval
    FOR EACH ROW EXECUTE FUNCTION dlq_admin_append_only();
CREATE TRIGGER dlq_admin_approval_no_truncate
    BEFORE TRUNCATE ON dlq_admin_approval
    FOR EACH STATEMENT EXECUTE FUNCTION dlq_admin_append_only();

CREATE TRIGGER dlq_admin_approval_waits
    BEFORE INSERT ON dlq_admin_approval
    FOR EACH ROW EXECUTE FUNCTION dlq_admin_approval_check();

CREATE TRIGGER dlq_admin_replay_batch_guard
    BEFORE INSERT OR UPDATE ON dlq_admin_replay_batch
    FOR EACH ROW EXECUTE FUNCTION dlq_admin_batch_guard();

CREATE FUNCTION dlq_admin_item_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    batch_status text;
BEGIN
    SELECT status INTO batch_status FROM dlq_admin_replay_batch WHERE id = NEW.batch_id;
    IF TG_OP = 'INSERT' THEN
        IF NEW.status <> 'DRAFT' OR batch_status <> 'DRAFT' THEN
            RAISE EXCEPTION 'the selection of batch % is frozen', NEW.batch_id
                USING ERRCODE = 'check_violation', CONSTRAINT = 'dlq_admin_item_frozen_ck';
        END IF;
        RETURN NEW;
    END IF;
    IF (NEW.batch_id, NEW.position, NEW.message_id, NEW.replay_id, NEW.verdict, NEW.verdict_reason,
        NEW.item_hash, NEW.payload_sha256, NEW.body, NEW.edit_diff, NEW.needs_extension,
        NEW.replay_count, NEW.snapshot)
        IS DISTINCT FROM
       (OLD.batch_id, OLD.position, OLD.message_id, OLD.replay_id, OLD.verdict, OLD.verdict_reason,
        OLD.item_hash, OLD.payload_sha256, OLD.body, OLD.edit_diff, OLD.needs_extension,
        OLD.replay_count, OLD.snapshot)
    THEN
        RAISE EXCEPTION 'the plan of item % is frozen', OLD.replay_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'dlq_admin_item_frozen_ck';
    END IF;
    IF NEW.status = OLD.status THEN
        RETURN NEW;
    END IF;
    IF NOT EXISTS (
        SELECT FROM dlq_admin_transition
         WHERE entity = 'item' AND from_status = OLD.status AND to_status = NEW.status
    ) THEN
        RAISE EXCEPTION 'item % cannot go from % to %', OLD.replay_id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'dlq_admin_item_jump_ck';
    END IF;
    IF NEW.status = 'APPROVED' AND batch_status <> 'APPROVED' THEN
        RAISE EXCEPTION 'item % is approved with its batch only', OLD.replay_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'dlq_admin_item_jump_ck';
    END IF;
    IF NEW.status IN ('CLAIMED', 'SENDING', 'COMPENSATED', 'DISCARDED')
        AND batch_status NOT IN ('CANARY', 'RUNNING', 'THROTTLED', 'PAUSED')
    THEN
        RAISE EXCEPTION 'batch % does not run', NEW.batch_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'dlq_admin_item_jump_ck';
    END IF;
    NEW.changed_at := clock_timestamp();
    RETURN NEW;
END $$;
CREATE TRIGGER dlq_admin_replay_item_guard
    BEFORE INSERT OR UPDATE ON dlq_admin_replay_item
    FOR EACH ROW EXECUTE FUNCTION dlq_admin_item_guard();

CREATE TRIGGER dlq_admin_replay_batch_no_delete
    BEFORE DELETE ON dlq_admin_replay_batch
    FOR EACH ROW EXECUTE FUNCTION dlq_admin_append_only();
CREATE TRIGGER dlq_admin_replay_item_no_delete
    BEFORE DELETE ON dlq_admin_replay_item
    FOR EACH ROW EXECUTE FUNCTION dlq_admin_append_only();
