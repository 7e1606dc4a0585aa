package localtx_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/localtx"
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
	{"not null", `INSERT INTO accounts VALUES ('secret-7', NULL, NULL)`,
		txn.Rejection{Message: `null value in column "balance" of relation "accounts" violates not-null constraint`, SQLState: "23502"}},
	{"foreign key", `INSERT INTO entries VALUES ('secret-7', 1)`,
		txn.Rejection{Message: `insert or update on table "entries" violates foreign key constraint "of_account"`, SQLState: "23503", Constraint: "of_account"}},
	{"foreign key at COMMIT", `INSERT INTO later VALUES ('secret-7')`,
		txn.Rejection{Message: `insert or update on table "later" violates foreign key constraint "of_account_later"`, SQLState: "23503", Constraint: "of_account_later"}},
	{"trigger at COMMIT", `INSERT INTO ends VALUES (1)`, txn.Rejection{Message: "refused at the end", SQLState: "P0001"}},
	{"RAISE", `SELECT refuse('the shop is closed', 'P0001')`, txn.Rejection{Message: "the shop is closed", SQLState: "P0001"}},
	{"RAISE with a SQLSTATE of its own", `SELECT refuse('no more credit', 'BK042')`, txn.Rejection{Message: "no more credit", SQLState: "BK042"}},
	{"RAISE with a SQLSTATE of class 22", `SELECT refuse('too much', '22003')`, txn.Rejection{Message: "too much", SQLState: "22003"}},
	{"wrong text", `SELECT 'secret-7'::text::int`, txn.Rejection{Message: "a value does not fit its type or range", SQLState: "22P02"}},
	{"out of range", `UPDATE accounts SET balance = balance + 9223372036854775807`, txn.Rejection{Message: "a value does not fit its type or range", SQLState: "22003"}},
	{"too long for an index", `INSERT INTO accounts SELECT string_agg(encode(sha512(n::text::bytea), 'hex'), '') || 'secret-7', 'x', 1 FROM generate_series(1, 99) AS n`,
		txn.Rejection{Message: "a value does not fit its type or range", SQLState: "54000"}},
}

func TestRejections(t *testing.T) {
	t.Parallel()
	e := setup(t, withTables(accounts), withPrograms(func(add func(string, localtx.Program)) {
		for i, r := range refusals {
			add(fmt.Sprint("planner", i), statements(`INSERT INTO entries VALUES ('a', 1)`, r.statement))
			add(fmt.Sprint("handler", i), each(`INSERT INTO entries VALUES ('a', 1)`, r.statement))
		}
	}))
	for i, r := range refusals {
		for _, program := range []string{"planner", "handler"} {
			kind := fmt.Sprint(program, i)
			a := attempt(kind, "tx-"+kind, `{"secret": "secret-7"}`)
			o := e.store.Run(t.Context(), a)
			if o.Kind != txn.OutcomeRejected {
				t.Errorf("%s, %s: got %s: %v", program, r.name, outcomeNames[o.Kind], o.Err)
				continue
			}
			if diff := cmp.Diff(&r.want, o.Transaction.Rejection); diff != "" {
				t.Errorf("%s, %s: (-want +got):\n%s", program, r.name, diff)
			}
			wantRefusedRow(e, a, o.Transaction)
		}
	}
	if n := e.count("entries") + e.count("later") + e.count("ends"); n != 0 || e.count(`accounts WHERE balance <> 10 OR id <> 'a'`) != 0 {
		t.Error("a refused transaction changed something")
	}
}

// wantRefusedRow: the answer is kept, the same attempt and others get it again, and there is nothing to deliver.
func wantRefusedRow(e *env, a *txn.Attempt, first *txn.Transaction) {
	e.t.Helper()
	if first.State != txn.StateRolledBack || first.Delivery != txn.DeliveryNone || first.Abandoned || first.Result != nil {
		e.t.Errorf("%s: got %+v", a.Request.ID, first)
	}
	if diff := cmp.Diff(first, e.find(a.Request.ID)); diff != "" {
		e.t.Errorf("%s: Find differs (-outcome +found):\n%s", a.Request.ID, diff)
	}
	again := e.store.Run(e.t.Context(), sameRequest(a))
	wantKind(e.t, again, txn.OutcomeTaken)
	if diff := cmp.Diff(first, again.Transaction); diff != "" {
		e.t.Errorf("%s: the second attempt differs (-first +second):\n%s", a.Request.ID, diff)
	}
	verdict, _ := e.decide(a)
	wantVerdict(e.t, verdict, txn.VerdictRollback)
	if row := value[string](e, `SELECT t::text FROM txsvc.transactions t WHERE id = $1`, a.Request.ID); strings.Contains(row, "secret-7") {
		e.t.Errorf("the row holds a value of the payload: %s", row)
	}
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
		{"own table", `UPDATE txsvc.transactions SET state = NULL`, txn.CodeInternal},
		{"no primary", `SET TRANSACTION READ ONLY`, txn.CodeDatabaseUnavailable},
		{"ended by an operator", `SELECT pg_terminate_backend(pg_backend_pid())`, txn.CodeDatabaseUnavailable},
		{"killed at COMMIT", `INSERT INTO dies VALUES (1)`, txn.CodeDatabaseUnavailable},
	}
	e := setup(t, withTables(accounts+`; CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
		CREATE TABLE dies (n int);
		CREATE CONSTRAINT TRIGGER die AFTER INSERT ON dies DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die()`),
		withPrograms(func(add func(string, localtx.Program)) {
			for i, f := range faults {
				after := `INSERT INTO entries VALUES ('a', 1)`
				add(fmt.Sprint("planner", i), statements(f.statement, after))
				add(fmt.Sprint("handler", i), each(f.statement, after))
			}
		}))
	for i, f := range faults {
		for _, program := range []string{"planner", "handler"} {
			kind := fmt.Sprint(program, i)
			o := e.store.Run(t.Context(), attempt(kind, "tx-"+kind, `{}`))
			if o.Kind != txn.OutcomeFailed || txn.CodeOf(o.Err) != f.code {
				t.Errorf("%s, %s: got %s: %v, want %s", program, f.name, outcomeNames[o.Kind], o.Err, f.code)
			}
		}
	}
	if n := e.count("txsvc.transactions WHERE NOT abandoned"); n != 0 {
		t.Errorf("got %d rows, want none", n)
	}
	if n := e.count("entries"); n != 0 {
		t.Errorf("got %d entries, want none", n)
	}
}

func TestPlannerRefuses(t *testing.T) {
	t.Parallel()
	e := setup(t,
		withProgram("rejects", planner(func(localtx.Input) (localtx.Plan, error) {
			return localtx.Plan{}, fmt.Errorf("checking: %w", &txn.Rejection{Message: "not on Sundays"})
		})),
		withProgram("invalid", planner(func(localtx.Input) (localtx.Plan, error) {
			return localtx.Plan{}, txn.Invalid(txn.FieldError{Pointer: "/payload/x", Message: "is wrong"})
		})),
		withProgram("panics", planner(func(localtx.Input) (localtx.Plan, error) { panic("oops") })),
		withProgram("unsendable", planner(func(localtx.Input) (localtx.Plan, error) {
			return localtx.Plan{Statements: []localtx.Statement{{SQL: `SELECT $1::int`, Args: []any{struct{}{}}}}}, nil
		})),
		withProgram("badly", planner(func(localtx.Input) (localtx.Plan, error) {
			return localtx.Plan{Result: json.RawMessage(`{`)}, nil
		})),
	)
	rejected := attempt("rejects", "tx-1", `{}`)
	o := e.store.Run(t.Context(), rejected)
	wantKind(t, o, txn.OutcomeRejected)
	if got := o.Transaction.Rejection.Message; got != "not on Sundays" {
		t.Errorf("got %q", got)
	}
	wantRefusedRow(e, rejected, o.Transaction)
	wantFailed(t, e.store.Run(t.Context(), attempt("invalid", "tx-2", `{}`)), txn.CodeInvalidRequest, "/payload/x")
	wantFailed(t, e.store.Run(t.Context(), attempt("panics", "tx-3", `{}`)), txn.CodeInternal, "panicked: oops")
	wantFailed(t, e.store.Run(t.Context(), attempt("unsendable", "tx-4", `{}`)), txn.CodeInternal, "nothing was changed")
	wantFailed(t, e.store.Run(t.Context(), attempt("badly", "tx-5", `{}`)), txn.CodeInternal, "nothing was changed")
	if n := e.count("txsvc.transactions"); n != 1 {
		t.Errorf("got %d rows, want 1", n)
	}
}

func TestOrdersRefused(t *testing.T) {
	t.Parallel()
	e := setup(t)
	wantKind(t, e.store.Run(t.Context(), attempt("orders", "tx-0", `{"customer":"c","currency":"EUR","reference":"r","items":[{"sku":"a","quantity":1,"amount_minor":1}]}`)), txn.OutcomeCommitted)
	for payload, constraint := range map[string]string{
		`{"customer":"","currency":"EUR","items":[{"sku":"a","quantity":1,"amount_minor":1}]}`:                  "orders_customer_length",
		`{"customer":"c","currency":"eur","items":[{"sku":"a","quantity":1,"amount_minor":1}]}`:                 "orders_currency_iso4217",
		`{"customer":"c","currency":"EUR","items":[{"sku":"","quantity":1,"amount_minor":1}]}`:                  "order_items_sku_length",
		`{"customer":"c","currency":"EUR","items":[{"sku":"a","quantity":0,"amount_minor":1}]}`:                 "order_items_quantity_positive",
		`{"customer":"c","currency":"EUR","items":[{"sku":"a","quantity":1,"amount_minor":-1}]}`:                "orders_total_not_negative",
		`{"customer":"c","currency":"EUR","reference":"r","items":[{"sku":"a","quantity":1,"amount_minor":1}]}`: "orders_reference_once",
		`{"customer":"c","currency":"EUR","items":[{"sku":"a\u0000","quantity":1,"amount_minor":1}]}`:           "",
	} {
		o := e.store.Run(t.Context(), attempt("orders", fmt.Sprint("tx", serial.Add(1)), payload))
		if o.Kind != txn.OutcomeRejected {
			t.Errorf("%s: got %s: %v", payload, outcomeNames[o.Kind], o.Err)
		} else if got := o.Transaction.Rejection.Constraint; got != constraint {
			t.Errorf("%s: got %q, want %q", payload, got, constraint)
		}
	}
	if n := e.count("orders"); n != 1 {
		t.Errorf("got %d orders, want 1", n)
	}
}
