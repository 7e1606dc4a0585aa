-- +goose Up
-- Tables of the kinds that ship as examples: the Go handler "orders" and the SQL kind "payment.capture". Amounts are in
-- minor units of the currency (cents).
--
-- The schema is named because the search path of whoever migrates may begin with another one.
CREATE TABLE public.orders (
    id           text PRIMARY KEY,
    customer     text NOT NULL CONSTRAINT orders_customer_length CHECK (char_length(customer) BETWEEN 1 AND 255),
    currency     text NOT NULL CONSTRAINT orders_currency_iso4217 CHECK (currency ~ '^[A-Z]{3}$'),
    total_minor  bigint NOT NULL CONSTRAINT orders_total_not_negative CHECK (total_minor >= 0),
    -- The customer's own number for the order, unique for the customer when given.
    reference    text CONSTRAINT orders_reference_length CHECK (char_length(reference) <= 255),
    created_at   timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX orders_reference_once ON public.orders (customer, reference) WHERE reference IS NOT NULL;

CREATE TABLE public.order_items (
    order_id     text NOT NULL REFERENCES public.orders (id) ON DELETE CASCADE,
    line         integer NOT NULL CHECK (line > 0),
    sku          text NOT NULL CONSTRAINT order_items_sku_length CHECK (char_length(sku) BETWEEN 1 AND 255),
    quantity     bigint NOT NULL CONSTRAINT order_items_quantity_positive CHECK (quantity > 0),
    amount_minor bigint NOT NULL CONSTRAINT order_items_amount_not_negative CHECK (amount_minor >= 0),
    PRIMARY KEY (order_id, line)
);

CREATE TABLE public.payments (
    id           text PRIMARY KEY,
    order_id     text NOT NULL REFERENCES public.orders (id),
    amount_minor bigint NOT NULL CONSTRAINT payments_amount_positive CHECK (amount_minor > 0),
    currency     text NOT NULL CONSTRAINT payments_currency_iso4217 CHECK (currency ~ '^[A-Z]{3}$'),
    captured_at  timestamptz NOT NULL DEFAULT now()
);

-- +goose Down
DROP TABLE public.payments;
DROP TABLE public.order_items;
DROP TABLE public.orders;
