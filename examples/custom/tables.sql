CREATE TABLE accounts (
    id text PRIMARY KEY,
    balance bigint NOT NULL CHECK (balance >= 0)
);
