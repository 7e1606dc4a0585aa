package config_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/txsvc/txsvc/internal/config"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/migrations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(stacktest.With(m)) }

// The shipped SQL kind does on PostgreSQL what its comment says.
func TestDevPaymentRunsOnPostgres(t *testing.T) {
	conn := devDatabase(t)
	file, err := config.Dev()
	if err != nil {
		t.Fatal(err)
	}
	capture := file.Kinds["payment.capture"].Local.SQL[0]
	run := func(id, payload string) (orderID string, amount int64, err error) {
		args := make([]any, len(capture.Args))
		for i, name := range capture.Args {
			args[i] = map[string]any{"id": id, "payload": payload}[name]
		}
		var currency string
		var at time.Time
		err = conn.QueryRow(t.Context(), capture.Text, args...).Scan(&id, &orderID, &amount, &currency, &at)
		return orderID, amount, err
	}
	const payload = `{"order_id":"o-1","amount_minor":9223372036854775807,"currency":"EUR"}`
	if order, amount, err := run("p-1", payload); err != nil || order != "o-1" || amount != 9223372036854775807 {
		t.Errorf("got order %q, amount %d, %v", order, amount, err)
	}
	for id, tt := range map[string]struct{ payload, sqlstate string }{
		"p-1": {payload, "23505"},
		"p-2": {`{"order_id":"o-2","amount_minor":1,"currency":"EUR"}`, "23503"},
		"p-3": {`{"order_id":"o-1","amount_minor":0,"currency":"EUR"}`, "23514"},
	} {
		_, _, err := run(id, tt.payload)
		if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != tt.sqlstate {
			t.Errorf("%s, %s: got %v, want SQLSTATE %s", id, tt.payload, err, tt.sqlstate)
		}
	}
}

// devDatabase has the tables of the shipped kinds and one order.
func devDatabase(t *testing.T) *pgx.Conn {
	t.Helper()
	url := stacktest.NewDatabase(t)
	if err := migrations.Up(t.Context(), url, migrations.Example); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), "insert into orders (id, customer, currency, total_minor) values ('o-1', 'c', 'EUR', 1)"); err != nil {
		t.Fatal(err)
	}
	return conn
}
