-- +goose Up
-- The queues that selectors with on_change: refuse choose from: the same in every replica, also in one that starts while
-- a broker is away. A row is made at a topic's first use, and changed only by an operator (txsvc route accept).
CREATE TABLE txsvc.topic_queues (
    topic       text COLLATE "C" PRIMARY KEY,
    -- broker:id, sorted by broker, then id: their order is a part of what selectors compute.
    queues      text[] NOT NULL,
    version     bigint NOT NULL DEFAULT 1,
    accepted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The list before is in use until then. Keys that the two lists send to different queues are refused that long, so
    -- that no two replicas send one key to different queues at the same time.
    previous    text[],
    in_use_from timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- +goose Down
DROP TABLE txsvc.topic_queues;
