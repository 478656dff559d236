-- The two partitioned tables of messaging; the window of days is kept by messaging/partitions.py.

-- One row for each message that a group has dealt with. The key is the partition column's own:
-- a message id is `evt_` + ULID, so its text order is time order and uniqueness is real.
CREATE TABLE messaging_inbox (
    id bigint GENERATED ALWAYS AS IDENTITY,
    consumer_group text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    outcome text NOT NULL,
    reason text NOT NULL DEFAULT '',
    reservation_id text COLLATE "C" NOT NULL DEFAULT '',
    order_id text COLLATE "C" NOT NULL DEFAULT '',
    delivery_attempt integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT messaging_inbox_message_uniq PRIMARY KEY (consumer_group, message_id),
    CONSTRAINT messaging_inbox_outcome_ck
        CHECK (outcome IN ('CREATED', 'REJECTED', 'APPLIED', 'STALE_NOOP'))
) PARTITION BY RANGE (message_id);

CREATE TABLE messaging_inbox_default PARTITION OF messaging_inbox DEFAULT;

-- Messages to publish. Only due rows are indexed for the relay; event_id is for people and jobs.
CREATE TABLE messaging_outbox (
    id bigint GENERATED ALWAYS AS IDENTITY,
    created_at timestamptz NOT NULL DEFAULT now(),
    topic text NOT NULL,
    tag text NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    keys text NOT NULL,
    payload text NOT NULL,
    properties jsonb NOT NULL DEFAULT '{}',
    lane smallint NOT NULL,
    deliver_at_ms bigint,
    state smallint NOT NULL DEFAULT 0,
    available_at timestamptz NOT NULL DEFAULT now(),
    attempts integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 20,
    claim_token uuid,
    replay_id text NOT NULL DEFAULT '',
    last_error text NOT NULL DEFAULT '',
    sent_at timestamptz,
    CONSTRAINT messaging_outbox_id_uniq PRIMARY KEY (id, created_at),
    CONSTRAINT messaging_outbox_lane_ck CHECK (lane IN (0, 1, 2)),
    CONSTRAINT messaging_outbox_state_ck CHECK (state IN (0, 1, 2)),
    CONSTRAINT messaging_outbox_sent_ck CHECK ((state = 1) = (sent_at IS NOT NULL))
) PARTITION BY RANGE (created_at);

CREATE INDEX messaging_outbox_due_idx
    ON messaging_outbox (lane, available_at, id) WHERE state = 0;
CREATE INDEX messaging_outbox_event_idx ON messaging_outbox (event_id);

CREATE TABLE messaging_outbox_default PARTITION OF messaging_outbox DEFAULT;
