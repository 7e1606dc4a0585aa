package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// tablesOfAll are the tables of contenders that have others than notes.
const tablesOfAll = `
create schema bench;
create table bench.plain_tx (id text primary key, shard_key text not null, body bytea not null, at timestamptz not null default now());
create schema bench_strict;
create table bench_strict.orders (like public.orders including all);
create table bench_strict.order_items (like public.order_items including all,
  foreign key (order_id) references bench_strict.orders (id) on delete cascade);
`

// notesTable is the table of one contender's business change. It has the contender's name.
const notesTable = `create table bench.%s_notes (id text primary key, shard_key text not null, n int not null check (n >= 0),
  seq bigserial, at timestamptz not null default clock_timestamp());
`

// makeTables makes all tables that are not the service's.
func makeTables(ctx context.Context, db *pgx.Conn, contenders []*contender) error {
	var sql strings.Builder
	sql.WriteString(tablesOfAll)
	for _, c := range contenders {
		if strings.HasPrefix(c.table, "bench.") {
			fmt.Fprintf(&sql, notesTable, c.name)
		}
		sql.WriteString(c.tables)
	}
	if _, err := db.Exec(ctx, sql.String()); err != nil {
		return fmt.Errorf("making the contenders' tables: %w", err)
	}
	return nil
}
