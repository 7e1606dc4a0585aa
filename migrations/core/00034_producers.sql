-- +goose Up
-- The processes that work on this database, by the digits with which the ids of all their messages begin (UNIQ_KEY): a
-- check-back about a half message of another process is of another service, or another database, which uses the same producer
-- group, and is not ours to answer. Processes of the version before are not here: their half messages are known by the rows
-- that name them.
CREATE TABLE txsvc.producers (
    prefix  text COLLATE "C" PRIMARY KEY,
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- +goose Down
DROP TABLE txsvc.producers;
