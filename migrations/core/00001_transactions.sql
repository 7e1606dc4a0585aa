-- +goose Up
-- One row per transaction id. It is written by the local transaction itself, so that it exists if and only if the
-- business change does; what the answer, the check-backs and the deliveries need is read off it.
CREATE TABLE txsvc.transactions (
    id                text COLLATE "C" PRIMARY KEY,
    kind              text NOT NULL,
    -- prepared, committed or rolled_back; and none, pending or delivered. Checks of that would cost each transaction as
    -- much as half of this row does: PostgreSQL reads their expressions anew for every statement.
    state             text NOT NULL,
    delivery          text NOT NULL,
    -- Only fences half messages of attempts that never committed; a new attempt with the id may replace the row.
    abandoned         boolean NOT NULL DEFAULT false,
    -- UNIQ_KEYs of half messages that were answered "rollback" without a decided row: an attempt with one of them can
    -- never commit. The primary key makes the two sides wait for each other.
    fenced            text[],
    request_hash      bytea,
    shard_key         text NOT NULL,
    topic             text NOT NULL,
    tag               text NOT NULL,
    keys              text[],
    properties        jsonb,
    traceparent       text,
    broker            text NOT NULL,
    queue_id          integer NOT NULL,
    selector          text NOT NULL,
    reason            text NOT NULL,
    -- The half message that the row belongs to: what END_TRANSACTION needs.
    uniq_key          text NOT NULL,
    commit_log_offset bigint NOT NULL,
    queue_offset      bigint NOT NULL,
    -- Kept until the message is known to be visible, so that it can be sent again when the broker lost the half message.
    body              bytea,
    result            json,
    rejection         json,
    created_at        timestamptz NOT NULL,
    decided_at        timestamptz,
    delivered_at      timestamptz,
    expires_at        timestamptz,
    -- The exclusive right to deliver. It ends later than anything its holder sent can still be executed by the broker.
    lease_until       timestamptz,
    lease_epoch       bigint NOT NULL DEFAULT 1,
    attempts          integer NOT NULL DEFAULT 0,
    last_error        text
);

-- What the resolver scans: small, since a row leaves it when its message is visible.
CREATE INDEX transactions_pending ON txsvc.transactions (lease_until) WHERE delivery = 'pending';

-- +goose Down
DROP TABLE txsvc.transactions;
