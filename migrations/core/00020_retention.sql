-- +goose Up
-- Where the sweep that deletes old transactions stands. All replicas share it: who locks the row does the next step.
CREATE TABLE txsvc.retention (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    block    bigint NOT NULL DEFAULT 0,                    -- of txsvc.transactions, the next to look at
    next_at  timestamptz NOT NULL DEFAULT '-infinity'      -- no step before
);
INSERT INTO txsvc.retention DEFAULT VALUES;

-- Each transaction leaves one dead row version behind (the mark "delivered"), each that is deleted another one. A share
-- of 20 %, the default, is millions of them in a large table.
ALTER TABLE txsvc.transactions SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);

-- +goose Down
ALTER TABLE txsvc.transactions RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_insert_scale_factor);
DROP TABLE txsvc.retention;
