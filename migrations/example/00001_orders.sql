-- +goose Up
-- Tables of the kinds that ship as examples: the Go handler "orders" and the SQL kind "payment.capture". Amounts are in
-- minor units of the currency (cents).
CREATE TABLE orders (
    id           text PRIMARY KEY,
    customer     text NOT NULL CHECK (customer <> ''),
    currency     text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    total_minor  bigint NOT NULL CHECK (total_minor >= 0),
    -- The customer's own number for the order, unique for the customer when given.
    reference    text,
    created_at   timestamptz NOT NULL DEFAULT now(),
    UNIQUE (customer, reference)
);

CREATE TABLE order_items (
    order_id     text NOT NULL REFERENCES orders (id) ON DELETE CASCADE,
    line         integer NOT NULL CHECK (line > 0),
    sku          text NOT NULL CHECK (sku <> ''),
    quantity     bigint NOT NULL CHECK (quantity > 0),
    amount_minor bigint NOT NULL CHECK (amount_minor >= 0),
    PRIMARY KEY (order_id, line)
);

CREATE TABLE payments (
    id           text PRIMARY KEY,
    order_id     text NOT NULL REFERENCES orders (id),
    amount_minor bigint NOT NULL CHECK (amount_minor > 0),
    currency     text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    captured_at  timestamptz NOT NULL DEFAULT now()
);

-- +goose Down
DROP TABLE payments;
DROP TABLE order_items;
DROP TABLE orders;
