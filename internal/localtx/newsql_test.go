package localtx_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/localtx/sqltext"
	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

const stock = `
	CREATE TABLE stock (sku text PRIMARY KEY, n int NOT NULL CHECK (n >= 0), tags jsonb NOT NULL DEFAULT '{}');
	INSERT INTO stock VALUES ('pen', 5, '{"color": "blue"}'), ('ink', 2, '{}');
	CREATE TABLE moves (tx text, sku text, n int);
	CREATE FUNCTION take(tx text, item text, wanted int) RETURNS int LANGUAGE plpgsql AS $$
		DECLARE rest int;
		BEGIN
			UPDATE stock SET n = n - wanted WHERE sku = item RETURNING n INTO rest;
			IF NOT FOUND THEN RAISE EXCEPTION 'no such article'; END IF;
			INSERT INTO moves VALUES (tx, item, -wanted);
			RETURN rest;
		END $$;
	CREATE PROCEDURE restock(item text) LANGUAGE sql AS $$ UPDATE stock SET n = n + 10 WHERE sku = item $$`

func TestSQLResults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sql, result string
		moves       int // rows written, to see that all was executed
	}{
		"INSERT RETURNING":       {`INSERT INTO moves VALUES (@id, @payload->>'sku', 1) RETURNING tx, n`, `{"tx":"tx-1","n":1}`, 1},
		"INSERT of many":         {`INSERT INTO moves SELECT @id, 'x', n FROM generate_series(1, 3) AS n RETURNING n`, `{"n":1}`, 3},
		"INSERT":                 {`INSERT INTO moves VALUES (@id, @payload->>'sku', 1)`, ``, 1},
		"UPDATE of nothing":      {`INSERT INTO moves VALUES (@id); UPDATE stock SET n = n - 1 WHERE sku = 'nothing' RETURNING n`, ``, 1},
		"UPDATE":                 {`UPDATE stock SET n = n - 1 WHERE sku = @payload->>'sku' AND tags @> (@payload->'tags') RETURNING sku, n`, `{"sku":"pen","n":4}`, 0},
		"operator":               {`SELECT @payload @> '{"sku": "pen"}' AS has, @selector_arg IS NULL AS none`, `{"has":true,"none":true}`, 0},
		"function":               {`SELECT take(@id, @payload->>'sku', 2) AS rest`, `{"rest":3}`, 1},
		"function, many rows":    {`SELECT take(@id, sku, 1) AS rest FROM (SELECT sku FROM stock ORDER BY sku DESC) AS s`, `{"rest":4}`, 2},
		"WITH INSERT":            {"WITH s AS (SELECT sku FROM stock)\nINSERT INTO moves SELECT @id, sku, 0 FROM s ORDER BY sku RETURNING sku", `{"sku":"ink"}`, 2},
		"WITH that writes":       {`WITH m AS (INSERT INTO moves VALUES (@id, 'a', 1), (@id, 'b', 2) RETURNING n), gone AS (DELETE FROM stock RETURNING n) SELECT (SELECT sum(n) FROM m) AS moved, sum(n) AS gone FROM gone`, `{"moved":3,"gone":7}`, 2},
		"WITH RECURSIVE":         {`WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 4) INSERT INTO moves SELECT @id, 'r', n FROM r RETURNING n`, `{"n":1}`, 4},
		"several":                {`INSERT INTO moves VALUES (@id, 'a', 1); UPDATE stock SET n = 9; SELECT sum(n) AS total, @shard_key AS key FROM stock`, `{"total":18,"key":"key-tx-1"}`, 1},
		"comment at the end":     {"SELECT 1 AS one -- and that is it\n; -- really", `{"one":1}`, 0},
		"comment inside":         {"SELECT 1 AS one /* ) */ -- )\n, 2 AS two", `{"one":1,"two":2}`, 0},
		"VALUES":                 {`VALUES (@id, 1), ('b', 2)`, `{"column1":"tx-1","column2":1}`, 0},
		"a column named like us": {`SELECT 1 AS txsvc_last, 2 AS l, 3 AS id, 4 AS result`, `{"txsvc_last":1,"l":2,"id":3,"result":4}`, 0},
		"NULL":                   {`SELECT NULL AS n, @local_arg AS a`, `{"n":null,"a":null}`, 0},
		"locks":                  {`SELECT n FROM stock WHERE sku = 'pen' FOR UPDATE`, `{"n":5}`, 0},
		"no row":                 {`SELECT n FROM stock WHERE false`, ``, 0},
		"CALL":                   {`INSERT INTO moves VALUES (@id); CALL restock('pen')`, ``, 1},
		"DO":                     {`DO $$ BEGIN INSERT INTO moves VALUES ('do'); END $$`, ``, 1},
		"settings":               {`SET LOCAL lock_timeout = '1s'; SET CONSTRAINTS ALL IMMEDIATE; SELECT current_setting('lock_timeout') AS t`, `{"t":"1s"}`, 0},
		"numbers":                {`SELECT 1.50::numeric AS price, 9007199254740993 AS large`, `{"price":1.50,"large":9007199254740993}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program, err := task.ParseSQL(tt.sql)
			if err != nil {
				t.Fatal(err)
			}
			e := pgtest.New(t, pgtest.WithTables(stock), pgtest.WithProgram("sql", program))
			a := pgtest.Attempt("sql", "tx-1", `{"sku": "pen", "tags": {"color": "blue"}}`)
			o := e.Store.Run(t.Context(), a)
			pgtest.WantKind(t, o, txn.OutcomeCommitted)
			sameJSON(t, "result", o.Transaction.Result, tt.result)
			if diff := cmp.Diff(o.Transaction, e.Find("tx-1")); diff != "" {
				t.Errorf("Find differs (-outcome +found):\n%s", diff)
			}
			if n := e.Count("moves"); n != tt.moves {
				t.Errorf("got %d moves, want %d", n, tt.moves)
			}
			// In the place of a fence, where the statements go one by one, the result is the same.
			e.Exec(`TRUNCATE moves, stock; INSERT INTO stock VALUES ('pen', 5, '{"color": "blue"}'), ('ink', 2, '{}')`)
			again := pgtest.Attempt("sql", "tx-1", string(a.Request.Payload))
			e.Exec(`DELETE FROM txsvc.transactions`)
			e.Decide(a)
			o = e.Store.Run(t.Context(), again)
			pgtest.WantKind(t, o, txn.OutcomeCommitted)
			sameJSON(t, "result after a fence", o.Transaction.Result, tt.result)
			if diff := cmp.Diff(o.Transaction, e.Find("tx-1")); diff != "" {
				t.Errorf("Find after a fence differs (-outcome +found):\n%s", diff)
			}
		})
	}
}

func TestSQLRefuses(t *testing.T) {
	t.Parallel()
	program, err := task.ParseSQL(`INSERT INTO moves VALUES (@id, 'pen', 1); SELECT take(@id, @payload->>'sku', (@local_arg->>'n')::int)`)
	if err != nil {
		t.Fatal(err)
	}
	e := pgtest.New(t, pgtest.WithTables(stock), pgtest.WithProgram("sql", program))
	for i, tt := range []struct{ payload, arg, message string }{
		{`{"sku": "pen"}`, `{"n": 6}`, `new row for relation "stock" violates check constraint "stock_n_check"`},
		{`{"sku": "cup"}`, `{"n": 1}`, "no such article"},
	} {
		a := pgtest.Attempt("sql", fmt.Sprint("tx-", i), tt.payload)
		a.Request.LocalArg = json.RawMessage(tt.arg)
		o := e.Store.Run(t.Context(), a)
		pgtest.WantKind(t, o, txn.OutcomeRejected)
		if got := o.Transaction.Rejection.Message; got != tt.message {
			t.Errorf("got %q, want %q", got, tt.message)
		}
	}
	if n := e.Count("moves"); n != 0 {
		t.Errorf("got %d moves, want none", n)
	}
	_, err = task.ParseSQL(`SELECT 1; COMMIT`)
	if _, ok := errors.AsType[*sqltext.Error](err); !ok {
		t.Errorf("got %v, want an *sqltext.Error", err)
	}
}

func sameJSON(t testing.TB, what string, got json.RawMessage, want string) {
	t.Helper()
	if string(got) != want {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}
