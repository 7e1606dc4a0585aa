-- +goose Up
-- What the selector of a topic's ordered kinds is, as configured: another one would send keys to other queues. Both are
-- null until a replica that knows these columns has recorded it; replicas of the version before leave them alone.
ALTER TABLE txsvc.topic_queues
    ADD COLUMN selector          text,
    ADD COLUMN previous_selector text; -- before the last acceptance

-- +goose Down
ALTER TABLE txsvc.topic_queues DROP COLUMN selector, DROP COLUMN previous_selector;
