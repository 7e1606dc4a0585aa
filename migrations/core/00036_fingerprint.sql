-- +goose Up
-- What a request means, beside its bytes (request_hash): the same id with the same request in other words (the order of
-- keys, white space, escapes) is a repetition. Null on rows of the version before, which goes on with request_hash alone.
ALTER TABLE txsvc.transactions ADD COLUMN fingerprint bytea;

-- +goose Down
ALTER TABLE txsvc.transactions DROP COLUMN fingerprint;
