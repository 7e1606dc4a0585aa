package verify

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// TestRowsOfTheRunAreRead: all rows of the run are read, over several batches, and none of another run.
func TestRowsOfTheRunAreRead(t *testing.T) {
	t.Parallel()
	url := stacktest.NewMigrated(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	insert := func(first string, count int) {
		_, err := conn.Exec(t.Context(), `INSERT INTO txsvc.transactions (id, kind, state, delivery, shard_key, topic, tag, keys, properties, broker, queue_id,
				selector, reason, uniq_key, commit_log_offset, queue_offset, result, created_at, line)
			SELECT $1 || lpad(n::text, 9, '0'), 'k.one', 'committed', CASE WHEN n < 7 THEN 'pending' ELSE 'delivered' END, 's', 'topic', '', ARRAY['a', 'b'],
				'{"verify": "of-1"}', 'broker-a', 3, 'hash', 'r', '', 0, 0, '{"x":1}', now(), n
			FROM generate_series(0, $2::int - 1) n`, first, count)
		if err != nil {
			t.Fatal(err)
		}
	}
	const count = 2*rowBatch + 17
	insert("v-test-", count)
	for _, other := range []string{"v-tesu-", "v-test", "v-test1-", "v-tes-", "v-test.", "v-test,", "V-TEST-"} {
		insert(other, 20)
	}
	p := testPlan(t, nil)
	d, err := openDatabase(t.Context(), url, p.prefix, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	seen := make(map[uint32]int)
	var last *Row
	err = d.scan(t.Context(), func(r *Row) {
		n, ok := p.number(r.ID)
		if !ok {
			t.Errorf("got a row of another run: %s", r.ID)
		}
		seen[n]++
		last = r
	})
	if err != nil || len(seen) != count {
		t.Errorf("got %d rows, %v, want %d", len(seen), err, count)
	}
	for n, times := range seen {
		if times != 1 {
			t.Fatalf("row %d comes %d times", n, times)
		}
	}
	if !d.lines || last.Line == nil || *last.Line != count-1 || last.Properties[propertyName] != "of-1" || len(last.Keys) != 2 || string(last.Result) != `{"x":1}` {
		t.Errorf("got lines %t and the last row %+v", d.lines, last)
	}
	if n, err := d.pending(t.Context()); err != nil || n != 7 {
		t.Errorf("got %d pending, %v, want 7", n, err)
	}
	found := 0
	if err := d.find(t.Context(), []string{p.id(1), p.id(2), p.id(count)}, func(*Row) { found++ }); err != nil || found != 2 {
		t.Errorf("found %d, %v, want 2", found, err)
	}
	tableOfChanges(t, conn, d, p)
	dropLine(t, conn)
	older, err := openDatabase(t.Context(), url, p.prefix, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(older.close)
	if err := older.find(t.Context(), []string{p.id(1)}, func(r *Row) { found++; last = r }); err != nil || found != 3 || older.lines || last.Line != nil {
		t.Errorf("without lines: found %d, %v, lines %t, %+v", found, err, older.lines, last)
	}
}

// tableOfChanges reads a business table, whatever its collation.
func tableOfChanges(t *testing.T, conn *pgx.Conn, d *database, p *plan) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), `CREATE TABLE public.things AS SELECT id FROM txsvc.transactions; CREATE TABLE public.numbered (id bigint)`); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]bool{"public.things": true, "things": true, "public.nothing": false, "public.numbered": false} {
		if got, err := d.hasTable(t.Context(), table); err != nil || got != want {
			t.Errorf("table %s: got %t, %v, want %t", table, got, err, want)
		}
	}
	if _, err := d.hasTable(t.Context(), "things; drop table things"); err == nil {
		t.Error("a name that is none is taken")
	}
	var ids []string
	take := func(id string) { ids = append(ids, id) }
	if err := d.changes(t.Context(), "public.things", nil, take); err != nil || len(ids) != 2*rowBatch+17 {
		t.Errorf("got %d ids, %v, want those of the run", len(ids), err)
	}
	ids = nil
	if err := d.changes(t.Context(), "things", []string{p.id(3), "x"}, take); err != nil || len(ids) != 1 || ids[0] != p.id(3) {
		t.Errorf("got %v, %v, want %s", ids, err, p.id(3))
	}
}

// dropLine makes the table that of a version without lines.
func dropLine(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), `ALTER TABLE txsvc.transactions DROP COLUMN line CASCADE`); err != nil {
		t.Fatal(err)
	}
}

func TestDatabaseIsLookedAt(t *testing.T) {
	t.Parallel()
	if _, err := openDatabase(t.Context(), "postgres://u:hunter2@h:x/", "v-test-", time.Second); err == nil || err.Error() != "the database URL is not valid: invalid port" {
		t.Errorf("a bad URL: got %v", err)
	}
	_, err := openDatabase(t.Context(), stacktest.NewDatabase(t), "v-test-", time.Second)
	if err == nil || err.Error() != "the database has no table txsvc.transactions: is it the one that the service uses?" {
		t.Errorf("an empty database: got %v", err)
	}
}
