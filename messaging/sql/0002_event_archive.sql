-- Events as they were received: raw bytes, append-only, a partition a day. The key is the partition
-- column: an event id is `evt_` + ULID, so its text order is time order and uniqueness is real.
CREATE TABLE messaging_event_archive (
    event_id text COLLATE "C" NOT NULL,
    topic text NOT NULL,
    tag text NOT NULL,
    aggregate_id text COLLATE "C" NOT NULL,
    aggregate_version integer NOT NULL,
    activity_id bigint NOT NULL,
    occurred_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    keys text NOT NULL DEFAULT '',
    properties jsonb NOT NULL DEFAULT '{}',
    body bytea NOT NULL,
    CONSTRAINT messaging_event_archive_event_uniq PRIMARY KEY (event_id)
) PARTITION BY RANGE (event_id);

CREATE INDEX messaging_event_archive_aggregate_idx
    ON messaging_event_archive (aggregate_id, occurred_at, aggregate_version);

CREATE TABLE messaging_event_archive_default PARTITION OF messaging_event_archive DEFAULT;

CREATE FUNCTION messaging_event_archive_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the event archive is append-only' USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER messaging_event_archive_append_only
    BEFORE UPDATE OR DELETE ON messaging_event_archive
    FOR EACH ROW EXECUTE FUNCTION messaging_event_archive_refuse();
