-- +goose NO TRANSACTION
-- Indexes of a table that others write to are made beside them, which PostgreSQL does outside of transactions only. So what
-- fails in the middle stays, and each statement can be run again.
-- +goose Up
-- A row whose delivery is 'tracked' was written once and is never marked: the process that wrote it keeps track of its
-- message. The process is the one whose prefix the row's uniq_key begins with; created_at tells its rows apart. All its
-- tracked rows before visible_before are visible; those from there up to the ceiling may not be, and are looked for when the
-- process is gone. A process that is not here has no tracked row that is not visible. Processes of the version before have
-- format 1 and track nothing, and must not meet tracked rows.
ALTER TABLE txsvc.producers
    ADD COLUMN IF NOT EXISTS format         integer NOT NULL DEFAULT 1,
    ADD COLUMN IF NOT EXISTS visible_before timestamptz,
    -- No attempt that began before is under way: its half message may be fenced.
    ADD COLUMN IF NOT EXISTS settled_before timestamptz,
    ADD COLUMN IF NOT EXISTS ceiling        timestamptz;

-- When the messages of tracked rows became visible, of many rows in one: see package producers.
CREATE TABLE IF NOT EXISTS txsvc.visible (
    producer text COLLATE "C" NOT NULL,
    before   timestamptz NOT NULL, -- has the rows from the one before up to here, by created_at
    times    bytea NOT NULL,
    PRIMARY KEY (producer, before)
);

-- The rows with what is known of their messages: for people who look.
CREATE OR REPLACE VIEW txsvc.current AS
    SELECT id, kind, state, CASE WHEN delivery <> 'tracked' THEN delivery
            WHEN EXISTS (SELECT FROM txsvc.producers p WHERE p.prefix = left(t.uniq_key, 20) AND t.created_at >= p.visible_before) THEN 'pending'
            ELSE 'delivered' END AS delivery,
        shard_key, topic, tag, keys, properties, traceparent, broker, queue_id, selector, reason, uniq_key, commit_log_offset, queue_offset,
        body, result, rejection, created_at, decided_at, delivered_at, expires_at, lease_until, lease_epoch, attempts, last_error,
        outbox, ordered, line, abandoned, fenced
    FROM txsvc.transactions t;

SET lock_timeout = '10min';
-- The rest of a process that is gone is found by this, and transactions are listed by it, newest first.
DROP INDEX CONCURRENTLY IF EXISTS txsvc.transactions_created;
CREATE INDEX CONCURRENTLY transactions_created ON txsvc.transactions (created_at);
RESET lock_timeout;

-- +goose Down
-- The version before does not know tracked rows. All services have to be stopped; what is not known to be visible is looked for.
UPDATE txsvc.transactions t SET delivery = 'pending', attempts = 1, lease_until = clock_timestamp() + interval '10 seconds'
    WHERE delivery = 'tracked' AND EXISTS (SELECT FROM txsvc.producers p WHERE p.prefix = left(t.uniq_key, 20) AND t.created_at >= p.visible_before);
UPDATE txsvc.transactions SET delivery = 'delivered', delivered_at = decided_at, body = NULL WHERE delivery = 'tracked';
SET lock_timeout = '10min';
DROP INDEX CONCURRENTLY IF EXISTS txsvc.transactions_created;
RESET lock_timeout;
DROP VIEW IF EXISTS txsvc.current;
DROP TABLE IF EXISTS txsvc.visible;
ALTER TABLE txsvc.producers DROP COLUMN IF EXISTS format, DROP COLUMN IF EXISTS visible_before, DROP COLUMN IF EXISTS settled_before,
    DROP COLUMN IF EXISTS ceiling;
