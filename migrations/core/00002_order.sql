-- +goose NO TRANSACTION
-- Indexes of a table that others write to are made beside them, which PostgreSQL does outside of transactions only. So what
-- fails in the middle stays, and each statement can be run again.
-- +goose Up
-- The place of an ordered transaction among those of its topic and shard key. It is taken while a lock on the two is held,
-- which ends after the COMMIT is seen by others: so lines are in the order of the COMMITs.
CREATE SEQUENCE IF NOT EXISTS txsvc.line;

-- Nothing is rewritten: defaults that are constants are not written into the rows that are there. Byte order needs no tables
-- of the operating system, which may change under an index.
ALTER TABLE txsvc.transactions
    ADD COLUMN IF NOT EXISTS outbox  boolean NOT NULL DEFAULT false, -- no half message (its offsets are -1): the relay sends the body
    ADD COLUMN IF NOT EXISTS ordered boolean NOT NULL DEFAULT false, -- becomes visible after all earlier ones of its line
    ADD COLUMN IF NOT EXISTS line    bigint,                         -- ordered rows only
    ALTER COLUMN broker TYPE text COLLATE "C",
    ALTER COLUMN topic TYPE text COLLATE "C",
    ALTER COLUMN shard_key TYPE text COLLATE "C";

-- What follows waits for transactions that are open, and nobody waits for it. DROP removes what an attempt left that failed.
SET lock_timeout = '10min';

-- All that is not known to be visible. The resolver looks for (false, false, lease_until <= now()); replicas of the version
-- before, which know nothing of the first two, read this index as a whole, as they did the one it replaces.
DROP INDEX CONCURRENTLY IF EXISTS txsvc.transactions_due;
CREATE INDEX CONCURRENTLY transactions_due ON txsvc.transactions (ordered, outbox, lease_until) WHERE delivery = 'pending';
-- The relay's: which brokers and topics there are is found by skipping from one to the next.
DROP INDEX CONCURRENTLY IF EXISTS txsvc.transactions_outbox;
CREATE INDEX CONCURRENTLY transactions_outbox ON txsvc.transactions (broker, topic, lease_until) WHERE delivery = 'pending' AND outbox AND NOT ordered;
-- The heads of lines are found by skipping from one line to the next, those ahead of a row by its line.
DROP INDEX CONCURRENTLY IF EXISTS txsvc.transactions_lines;
CREATE INDEX CONCURRENTLY transactions_lines ON txsvc.transactions (topic, shard_key, line) WHERE delivery = 'pending' AND ordered;
DROP INDEX CONCURRENTLY IF EXISTS txsvc.transactions_pending;
RESET lock_timeout;

-- +goose Down
SET lock_timeout = '10min';
DROP INDEX CONCURRENTLY IF EXISTS txsvc.transactions_pending;
CREATE INDEX CONCURRENTLY transactions_pending ON txsvc.transactions (lease_until) WHERE delivery = 'pending';
RESET lock_timeout;
ALTER TABLE txsvc.transactions DROP COLUMN IF EXISTS outbox, DROP COLUMN IF EXISTS ordered, DROP COLUMN IF EXISTS line,
    ALTER COLUMN broker TYPE text, ALTER COLUMN topic TYPE text, ALTER COLUMN shard_key TYPE text;
DROP SEQUENCE IF EXISTS txsvc.line;
