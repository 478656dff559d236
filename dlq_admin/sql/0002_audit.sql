-- The audit record is written once: numbered and hashed here, never changed, never deleted.

-- Number and hash a row. The head's row lock puts the writers of one chain in a line. SECURITY
-- DEFINER: the runtime role may insert events, and nothing else may move a head.
CREATE FUNCTION dlq_admin_audit_chain() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    head public.dlq_admin_audit_head%ROWTYPE;
BEGIN
    INSERT INTO public.dlq_admin_audit_head (chain, seq, hash)
        VALUES (NEW.chain, 0, repeat('0', 64)) ON CONFLICT (chain) DO NOTHING;
    SELECT * INTO head FROM public.dlq_admin_audit_head WHERE chain = NEW.chain FOR UPDATE;
    NEW.seq := head.seq + 1;
    NEW.prev_hash := head.hash;
    NEW.at := clock_timestamp();
    NEW.hash := encode(sha256(convert_to(concat_ws(E'\n',
        NEW.prev_hash, NEW.chain, NEW.seq,
        to_char(NEW.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        NEW.kind, coalesce(NEW.user_id::text, '-'), length(NEW.actor), NEW.actor, NEW.detail
    ), 'UTF8')), 'hex');
    UPDATE public.dlq_admin_audit_head SET seq = NEW.seq, hash = NEW.hash WHERE chain = NEW.chain;
    RETURN NEW;
END $$;

CREATE TRIGGER dlq_admin_audit_event_chain
    BEFORE INSERT ON dlq_admin_audit_event
    FOR EACH ROW EXECUTE FUNCTION dlq_admin_audit_chain();

CREATE FUNCTION dlq_admin_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: it is append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER dlq_admin_audit_event_append_only
    BEFORE UPDATE OR DELETE ON dlq_admin_audit_event
    FOR EACH ROW EXECUTE FUNCTION dlq_admin_append_only();
CREATE TRIGGER dlq_admin_audit_event_no_truncate
    BEFORE TRUNCATE ON dlq_admin_audit_event
    FOR EACH STATEMENT EXECUTE FUNCTION dlq_admin_append_only();
CREATE TRIGGER dlq_admin_audit_anchor_append_only
    BEFORE UPDATE OR DELETE ON dlq_admin_audit_anchor
    FOR EACH ROW EXECUTE FUNCTION dlq_admin_append_only();
CREATE TRIGGER dlq_admin_audit_anchor_no_truncate
    BEFORE TRUNCATE ON dlq_admin_audit_anchor
    FOR EACH STATEMENT EXECUTE FUNCTION dlq_admin_append_only();
CREATE TRIGGER dlq_admin_audit_head_no_delete
    BEFORE DELETE ON dlq_admin_audit_head
    FOR EACH ROW EXECUTE FUNCTION dlq_admin_append_only();
CREATE TRIGGER dlq_admin_audit_head_no_truncate
    BEFORE TRUNCATE ON dlq_admin_audit_head
    FOR EACH STATEMENT EXECUTE FUNCTION dlq_admin_append_only();
