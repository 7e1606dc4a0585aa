package localtx_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

const accounts = `
	CREATE TABLE accounts (id text PRIMARY KEY, owner text UNIQUE, balance bigint NOT NULL CONSTRAINT not_overdrawn CHECK (balance >= 0));
	CREATE TABLE entries (account text CONSTRAINT of_account REFERENCES accounts (id), amount bigint NOT NULL);
	CREATE TABLE later (account text CONSTRAINT of_account_later REFERENCES accounts (id) DEFERRABLE INITIALLY DEFERRED);
	CREATE FUNCTION refuse(message text, code text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '%', message USING ERRCODE = code; END $$;
	CREATE FUNCTION check_later() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused at the end'; END $$;
	CREATE TABLE ends (n int);
	CREATE CONSTRAINT TRIGGER check_later AFTER INSERT ON ends DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION check_later();
	CREATE DOMAIN positive AS int CHECK (value > 0);
	CREATE TABLE rooms (n int, CONSTRAINT one_each EXCLUDE (n WITH =));
	INSERT INTO accounts VALUES ('a', 'ann', 10)`

// refusals is what business rules can say, and what is stored of it. "secret-7" is a value of the payload.
var refusals = []struct {
	name, statement string
	want            txn.Rejection
}{
	{"check", `UPDATE accounts SET balance = balance - 11`,
		txn.Rejection{Message: `new row for relation "accounts" violates check constraint "not_overdrawn"`, SQLState: "23514", Constraint: "not_overdrawn"}},
	{"unique", `INSERT INTO accounts VALUES ('a', 'secret-7', 1)`,
		txn.Rejection{Message: `duplicate key value violates unique constraint "accounts_pkey"`, SQLState: "23505", Constraint: "accounts_pkey"}},
	{"foreign key", `INSERT INTO entries VALUES ('secret-7', 1)`,
		txn.Rejection{Message: `insert or update on table "entries" violates foreign key constraint "of_account"`, SQLState: "23503", Constraint: "of_account"}},
	{"foreign key at COMMIT", `INSERT INTO later VALUES ('secret-7')`,
		txn.Rejection{Message: `insert or update on table "later" violates foreign key constraint "of_account_later"`, SQLState: "23503", Constraint: "of_account_later"}},
	{"trigger at COMMIT", `INSERT INTO ends VALUES (1)`, txn.Rejection{Message: "refused at the end", SQLState: "P0001"}},
	{"RAISE", `SELECT refuse('the shop is closed', 'P0001')`, txn.Rejection{Message: "the shop is closed", SQLState: "P0001"}},
	{"RAISE with a SQLSTATE of its own", `SELECT refuse('no more credit', 'BK042')`, txn.Rejection{Message: "no more credit", SQLState: "BK042"}},
	{"RAISE with a SQLSTATE of class 22", `SELECT refuse('too much', '22003')`, txn.Rejection{Message: "too much", SQLState: "22003"}},
	{"RAISE with a SQLSTATE of a fault", `SELECT refuse('too slow', '57014')`, txn.Rejection{Message: "too slow", SQLState: "57014"}},
	{"domain", `SELECT (-7)::positive`, txn.Rejection{Message: `value for domain positive violates check constraint "positive_check"`, SQLState: "23514", Constraint: "positive_check"}},
	{"exclusion", `INSERT INTO rooms VALUES (1), (1)`,
		txn.Rejection{Message: `conflicting key value violates exclusion constraint "one_each"`, SQLState: "23P01", Constraint: "one_each"}},
}

func TestRejections(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTables(accounts), pgtest.WithPrograms(func(add func(string, task.Program)) {
		for i, r := range refusals {
			add(fmt.Sprint("planner", i), pgtest.Statements(`INSERT INTO entries VALUES ('a', 1)`, r.statement))
			add(fmt.Sprint("handler", i), pgtest.Each(`INSERT INTO entries VALUES ('a', 1)`, r.statement))
		}
	}))
	for i, r := range refusals {
		for _, program := range []string{"planner", "handler"} {
			kind := fmt.Sprint(program, i)
			a := pgtest.Attempt(kind, "tx-"+kind, `{"secret": "secret-7"}`)
			o := e.Store.Run(t.Context(), a)
			if o.Kind != txn.OutcomeRejected {
				t.Errorf("%s, %s: got %s: %v", program, r.name, pgtest.OutcomeNames[o.Kind], o.Err)
				continue
			}
			if diff := cmp.Diff(&r.want, o.Transaction.Rejection); diff != "" {
				t.Errorf("%s, %s: (-want +got):\n%s", program, r.name, diff)
			}
			wantRefusedRow(e, a, o.Transaction)
		}
	}
	if n := e.Count("entries") + e.Count("later") + e.Count("ends"); n != 0 || e.Count(`accounts WHERE balance <> 10 OR id <> 'a'`) != 0 {
		t.Error("a refused transaction changed something")
	}
}

// wantRefusedRow: the answer is kept, the same attempt and others get it again, and there is nothing to deliver.
func wantRefusedRow(e *pgtest.Env, a *txn.Attempt, first *txn.Transaction) {
	e.T.Helper()
	if first.State != txn.StateRolledBack || first.Delivery != txn.DeliveryNone || first.Abandoned || first.Result != nil {
		e.T.Errorf("%s: got %+v", a.Request.ID, first)
	}
	if diff := cmp.Diff(first, e.Find(a.Request.ID)); diff != "" {
		e.T.Errorf("%s: Find differs (-outcome +found):\n%s", a.Request.ID, diff)
	}
	again := e.Store.Run(e.T.Context(), pgtest.SameRequest(a))
	pgtest.WantKind(e.T, again, txn.OutcomeTaken)
	if diff := cmp.Diff(first, again.Transaction); diff != "" {
		e.T.Errorf("%s: the second attempt differs (-first +second):\n%s", a.Request.ID, diff)
	}
	resolution, _ := e.Decide(a)
	pgtest.WantResolution(e.T, resolution, txn.ResolutionRollback)
	if row := pgtest.Value[string](e, `SELECT t::text FROM txsvc.transactions t WHERE id = $1`, a.Request.ID); strings.Contains(row, "secret-7") {
		e.T.Errorf("the row holds a value of the payload: %s", row)
	}
}

// misfits are values that PostgreSQL cannot use, and what is told of them. "secret-7" and 77777777777 come from the payload.
var misfits = []struct{ statement, sqlstate, told string }{
	{`SELECT 'secret-7'::text::int`, "22P02", ": invalid input syntax for type integer"},
	{`SELECT 'secret-7'::text::timestamptz`, "22007", ": invalid input syntax for type timestamp with time zone"},
	{`SELECT '77777777777'::text::int`, "22003", ": is out of range for type integer"},
	{`SELECT '77777777777 "is out of range for type real'::text::float8`, "22P02", ": invalid input syntax for type double precision"},
	{`INSERT INTO fits (small) SELECT n FROM (SELECT 77777777777 AS n) AS x`, "22003", ": smallint out of range"},
	{`INSERT INTO fits (price) SELECT n FROM (SELECT 77777777777 AS n) AS x`, "22003", ": numeric field overflow of numeric(5,2)"},
	{`INSERT INTO fits (code) SELECT n FROM (SELECT 'secret-7'::text AS n) AS x`, "22001", ": value too long for type character varying(3)"},
	{`INSERT INTO fits (mood) SELECT n::mood FROM (SELECT 'secret-7'::text AS n) AS x`, "22P02", ": invalid input value for enum mood"},
	{`SELECT ('{"n": "secret-7"}'::jsonb->'n')::int`, "22023", ": cannot cast jsonb string to type integer"},
	{`SELECT jsonb_array_elements('{"n": "secret-7"}'::jsonb)`, "22023", ": cannot extract elements from an object"},
	{`SELECT jsonb_path_query('{"n": "secret-7"}'::jsonb, 'strict $.m')`, "2203A", ""},
	{`SELECT convert_to(n, 'LATIN1') FROM (SELECT 'secret-7' || chr(8364) AS n) AS x`, "22P05", ""},
	{`SELECT make_date(77777, 77, 77)`, "22008", ": date field value out of range"},
	{`UPDATE accounts SET balance = balance + 9223372036854775807`, "22003", ": bigint out of range"},
	{`INSERT INTO fits (needed) VALUES (NULL)`, "23502", `null value in column "needed" of relation "fits" violates not-null constraint`},
}

// A value that does not fit is told with its type or column, and without the value. It is no decision: the same id may be
// tried again, and commits when the table has been mended meanwhile.
func TestMisfits(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTables(accounts+`; CREATE TYPE mood AS ENUM ('good');
		CREATE TABLE fits (small smallint, price numeric(5,2), code varchar(3), mood mood, needed int NOT NULL DEFAULT 0)`),
		pgtest.WithPrograms(func(add func(string, task.Program)) {
			for i, m := range misfits {
				add(fmt.Sprint("planner", i), pgtest.Statements(`INSERT INTO entries VALUES ('a', 1)`, m.statement))
				add(fmt.Sprint("handler", i), pgtest.Each(`INSERT INTO entries VALUES ('a', 1)`, m.statement))
			}
			add("mended", pgtest.Statements(`INSERT INTO fits (small) SELECT n FROM (SELECT 77777777777 AS n) AS x`))
		}))
	for i, m := range misfits {
		for _, program := range []string{"planner", "handler"} {
			kind := fmt.Sprint(program, i)
			o := e.Store.Run(t.Context(), pgtest.Attempt(kind, "tx-"+kind, `{}`))
			pgtest.WantFailed(t, o, txn.CodeRejected, "nothing was changed")
			err, ok := errors.AsType[*txn.Error](o.Err)
			want := "a value does not fit its type or range" + m.told
			if m.sqlstate == "23502" {
				want = m.told
			}
			if !ok || err.Final || err.Rejection.SQLState != m.sqlstate || err.Rejection.Message != want || !strings.HasPrefix(err.Detail, want) {
				t.Errorf("%s, %s: got %+v, want %s and %q, not final", program, m.statement, err, m.sqlstate, want)
			}
			if text := fmt.Sprintf("%v %+v", o.Err, err.Rejection); strings.Contains(text, "secret") || strings.Contains(text, "77777") {
				t.Errorf("%s, %s: the error quotes a value: %s", program, m.statement, text)
			}
		}
	}
	if n := e.Count("txsvc.transactions") + e.Count("entries"); n != 0 {
		t.Errorf("got %d rows, want none", n)
	}
	a := pgtest.Attempt("mended", "tx-mended", `{}`)
	pgtest.WantFailed(t, e.Store.Run(t.Context(), a), txn.CodeRejected, "smallint out of range")
	e.Exec(`ALTER TABLE fits ALTER small TYPE bigint`)
	pgtest.WantKind(t, e.Store.Run(t.Context(), pgtest.SameRequest(a)), txn.OutcomeCommitted)
}

// Faults are not refusals: nothing is stored, and the same id may be tried again.
func TestFaults(t *testing.T) {
	t.Parallel()
	faults := []struct {
		name, statement string
		code            txn.Code
	}{
		{"undefined table", `INSERT INTO nowhere VALUES (1)`, txn.CodeInternal},
		{"undefined column", `UPDATE accounts SET nothing = 1`, txn.CodeInternal},
		{"syntax", `INSERT INTO INTO`, txn.CodeInternal},
		{"own table", `INSERT INTO txsvc.transactions (id) VALUES ('own')`, txn.CodeInternal},
		{"no partition", `INSERT INTO months VALUES ('secret-7')`, txn.CodeInternal},
		{"sequence at its end", `SELECT nextval('numbers'), nextval('numbers')`, txn.CodeInternal},
		{"division by zero", `SELECT balance / (SELECT 0) FROM accounts`, txn.CodeInternal},
		{"too long for an index", `INSERT INTO accounts SELECT string_agg(encode(sha512(n::text::bytea), 'hex'), '') || 'secret-7', 'x', 1 FROM generate_series(1, 99) AS n`, txn.CodeInternal},
		{"an object that is made twice", `INSERT INTO pg_namespace SELECT * FROM pg_namespace LIMIT 1`, txn.CodeInternal},
		{"assertion", `DO $$ BEGIN ASSERT false; END $$`, txn.CodeInternal},
		{"no row for INTO STRICT", `DO $$ DECLARE x int; BEGIN SELECT 1 INTO STRICT x WHERE false; END $$`, txn.CodeInternal},
		{"an argument of class 22 that quotes a value", `SELECT regexp_replace('x', 'x', 'y', 'secret-7')`, txn.CodeRejected},
		{"no primary", `SET TRANSACTION READ ONLY`, txn.CodeDatabaseUnavailable},
		{"ended by an operator", `SELECT pg_terminate_backend(pg_backend_pid())`, txn.CodeDatabaseUnavailable},
		{"killed at COMMIT", `INSERT INTO dies VALUES (1)`, txn.CodeDatabaseUnavailable},
	}
	e := pgtest.New(t, pgtest.WithTables(accounts+`; CREATE TABLE months (n text) PARTITION BY LIST (n); CREATE SEQUENCE numbers MINVALUE 0 START 1 MAXVALUE 1; CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
		CREATE TABLE dies (n int);
		CREATE CONSTRAINT TRIGGER die AFTER INSERT ON dies DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die()`),
		pgtest.WithPrograms(func(add func(string, task.Program)) {
			for i, f := range faults {
				after := `INSERT INTO entries VALUES ('a', 1)`
				add(fmt.Sprint("planner", i), pgtest.Statements(f.statement, after))
				add(fmt.Sprint("handler", i), pgtest.Each(f.statement, after))
			}
		}))
	for i, f := range faults {
		for _, program := range []string{"planner", "handler"} {
			kind := fmt.Sprint(program, i)
			o := e.Store.Run(t.Context(), pgtest.Attempt(kind, "tx-"+kind, `{}`))
			if o.Kind != txn.OutcomeFailed || txn.CodeOf(o.Err) != f.code {
				t.Errorf("%s, %s: got %s: %v, want %s", program, f.name, pgtest.OutcomeNames[o.Kind], o.Err, f.code)
			} else if strings.Contains(o.Err.Error(), "secret-7") {
				t.Errorf("%s, %s: the error for the log quotes a value: %v", program, f.name, o.Err)
			}
		}
	}
	if n := e.Count("txsvc.transactions WHERE NOT abandoned"); n != 0 {
		t.Errorf("got %d rows, want none", n)
	}
	if n := e.Count("entries"); n != 0 {
		t.Errorf("got %d entries, want none", n)
	}
}

func TestPlannerRefuses(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t,
		pgtest.WithProgram("rejects", pgtest.Planner(func(task.Input) (task.Plan, error) {
			return task.Plan{}, fmt.Errorf("checking: %w", &txn.Rejection{Message: "not on Sundays"})
		})),
		pgtest.WithProgram("invalid", pgtest.Planner(func(task.Input) (task.Plan, error) {
			return task.Plan{}, txn.Invalid(txn.FieldError{Pointer: "/payload/x", Message: "is wrong"})
		})),
		pgtest.WithProgram("panics", pgtest.Planner(func(task.Input) (task.Plan, error) { panic("oops") })),
		pgtest.WithProgram("unsendable", pgtest.Planner(func(task.Input) (task.Plan, error) {
			return task.Plan{Statements: []task.Statement{{SQL: `SELECT $1::int`, Args: []any{struct{}{}}}}}, nil
		})),
		pgtest.WithProgram("badly", pgtest.Planner(func(task.Input) (task.Plan, error) {
			return task.Plan{Result: json.RawMessage(`{`)}, nil
		})),
	)
	rejected := pgtest.Attempt("rejects", "tx-1", `{}`)
	o := e.Store.Run(t.Context(), rejected)
	pgtest.WantKind(t, o, txn.OutcomeRejected)
	if got := o.Transaction.Rejection.Message; got != "not on Sundays" {
		t.Errorf("got %q", got)
	}
	wantRefusedRow(e, rejected, o.Transaction)
	pgtest.WantFailed(t, e.Store.Run(t.Context(), pgtest.Attempt("invalid", "tx-2", `{}`)), txn.CodeInvalidRequest, "/payload/x")
	pgtest.WantFailed(t, e.Store.Run(t.Context(), pgtest.Attempt("panics", "tx-3", `{}`)), txn.CodeInternal, "panicked: oops")
	pgtest.WantFailed(t, e.Store.Run(t.Context(), pgtest.Attempt("unsendable", "tx-4", `{}`)), txn.CodeInternal, "nothing was changed")
	pgtest.WantFailed(t, e.Store.Run(t.Context(), pgtest.Attempt("badly", "tx-5", `{}`)), txn.CodeInternal, "nothing was changed")
	if n := e.Count("txsvc.transactions"); n != 1 {
		t.Errorf("got %d rows, want 1", n)
	}
}

func TestOrdersRefused(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	pgtest.WantKind(t, e.Store.Run(t.Context(), pgtest.Attempt("orders", "tx-0", `{"customer":"c","currency":"EUR","reference":"r","items":[{"sku":"a","quantity":1,"amount_minor":1}]}`)), txn.OutcomeCommitted)
	for payload, constraint := range map[string]string{
		`{"customer":"","currency":"EUR","items":[{"sku":"a","quantity":1,"amount_minor":1}]}`:                  "orders_customer_length",
		`{"customer":"c","currency":"eur","items":[{"sku":"a","quantity":1,"amount_minor":1}]}`:                 "orders_currency_iso4217",
		`{"customer":"c","currency":"EUR","items":[{"sku":"","quantity":1,"amount_minor":1}]}`:                  "order_items_sku_length",
		`{"customer":"c","currency":"EUR","items":[{"sku":"a","quantity":0,"amount_minor":1}]}`:                 "order_items_quantity_positive",
		`{"customer":"c","currency":"EUR","items":[{"sku":"a","quantity":1,"amount_minor":-1}]}`:                "orders_total_not_negative",
		`{"customer":"c","currency":"EUR","reference":"r","items":[{"sku":"a","quantity":1,"amount_minor":1}]}`: "orders_reference_once",
	} {
		o := e.Store.Run(t.Context(), pgtest.Attempt("orders", fmt.Sprint("tx", serial.Add(1)), payload))
		if o.Kind != txn.OutcomeRejected {
			t.Errorf("%s: got %s: %v", payload, pgtest.OutcomeNames[o.Kind], o.Err)
		} else if got := o.Transaction.Rejection.Constraint; got != constraint {
			t.Errorf("%s: got %q, want %q", payload, got, constraint)
		}
	}
	if n := e.Count("orders"); n != 1 {
		t.Errorf("got %d orders, want 1", n)
	}
}
