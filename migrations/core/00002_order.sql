-- +goose Up
-- The place of an ordered transaction among those of its topic and shard key. It is taken while a lock on the two is held,
-- which ends after the COMMIT is seen by others: so lines are in the order of the COMMITs.
CREATE SEQUENCE txsvc.line;

-- Defaults that are constants are not written into the rows that are there: nothing is rewritten.
ALTER TABLE txsvc.transactions
    ADD COLUMN outbox  boolean NOT NULL DEFAULT false, -- no half message (its offsets are -1): the relay sends the body
    ADD COLUMN ordered boolean NOT NULL DEFAULT false, -- becomes visible after all earlier ones of its line
    ADD COLUMN line    bigint;                         -- ordered rows only

-- Byte order needs no tables of the operating system, which may change under an index.
ALTER TABLE txsvc.transactions
    ALTER COLUMN broker TYPE text COLLATE "C",
    ALTER COLUMN topic TYPE text COLLATE "C",
    ALTER COLUMN shard_key TYPE text COLLATE "C";

-- All that is not known to be visible. The resolver looks for (false, false, lease_until <= now()); replicas of the version
-- before, which know nothing of the first two, read this index as a whole, as they did the one it replaces.
CREATE INDEX transactions_due ON txsvc.transactions (ordered, outbox, lease_until) WHERE delivery = 'pending';
-- The relay's: which brokers and topics there are is found by skipping from one to the next.
CREATE INDEX transactions_outbox ON txsvc.transactions (broker, topic, lease_until) WHERE delivery = 'pending' AND outbox AND NOT ordered;
-- The heads of lines are found by skipping from one line to the next, those ahead of a row by its line.
CREATE INDEX transactions_lines ON txsvc.transactions (topic, shard_key, line) WHERE delivery = 'pending' AND ordered;
DROP INDEX txsvc.transactions_pending;

-- +goose Down
CREATE INDEX transactions_pending ON txsvc.transactions (lease_until) WHERE delivery = 'pending';
ALTER TABLE txsvc.transactions DROP COLUMN outbox, DROP COLUMN ordered, DROP COLUMN line;
ALTER TABLE txsvc.transactions
    ALTER COLUMN broker TYPE text, ALTER COLUMN topic TYPE text, ALTER COLUMN shard_key TYPE text;
DROP SEQUENCE txsvc.line;
