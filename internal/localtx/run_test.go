package localtx_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

const notes = `CREATE TABLE notes (id text PRIMARY KEY, key text, payload jsonb, arg jsonb, other jsonb)`

var noteSQL = task.SQL{
	Statements: []task.Template{{
		Text: `INSERT INTO notes VALUES (($1::text), ($2::text), ($3::jsonb), ($4::jsonb), ($5::jsonb))`,
		Args: []string{"id", "shard_key", "payload", "local_arg", "selector_arg"},
	}},
}

var noteHandler = pgtest.Handler(func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
	_, err := tx.Exec(ctx, `INSERT INTO notes VALUES ($1, $2, $3, $4, $5)`, in.ID, in.ShardKey, in.Payload, in.LocalArg, in.SelectorArg)
	return map[string]any{"note": in.ID}, err
})

func TestRunCommits(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTables(notes), pgtest.WithProgram("sql", noteSQL), pgtest.WithProgram("handler", noteHandler))
	for kind, want := range map[string]string{
		"orders":  `{"order_id":"tx-orders","total_minor":1350,"currency":"EUR","items":2}`,
		"sql":     ``,
		"handler": `{"note":"tx-handler"}`,
	} {
		a := pgtest.Attempt(kind, "tx-"+kind, pgtest.Order)
		a.Request.SelectorArg = json.RawMessage(`{"lane": 1}`)
		before := time.Now()
		o := e.Store.Run(t.Context(), a)
		pgtest.WantKind(t, o, txn.OutcomeCommitted)
		var got, wanted any
		_, _ = json.Unmarshal(o.Transaction.Result, &got), json.Unmarshal([]byte(want), &wanted)
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("%s: result (-want +got):\n%s", kind, diff)
		}
		// P6: who asks again gets the same answer.
		if diff := cmp.Diff(o.Transaction, e.Find(a.Request.ID)); diff != "" {
			t.Errorf("%s: Find differs (-outcome +found):\n%s", kind, diff)
		}
		if o.Lease.ID != a.Request.ID || o.Lease.Epoch != 1 || o.Lease.WriteBefore.Before(before.Add(time.Second)) {
			t.Errorf("%s: lease: got %+v", kind, o.Lease)
		}
		wantRow(e, a, o.Transaction)
	}
	if got := pgtest.Value[string](e, `SELECT string_agg(sku || ':' || line || ':' || quantity || ':' || amount_minor, ' ' ORDER BY line)
		FROM orders JOIN order_items ON order_id = id WHERE id = 'tx-orders' AND customer = 'acme' AND total_minor = 1350`); got != "pen:1:3:150 ink:2:1:900" {
		t.Errorf("order: got %s", got)
	}
	if got := e.Count(`notes WHERE key = 'key-' || id AND payload = $1 AND arg IS NULL AND other = '{"lane":1}'`, pgtest.Order); got != 2 {
		t.Errorf("notes: got %d, want 2", got)
	}
}

// wantRow checks every column of the row against the attempt.
func wantRow(e *pgtest.Env, a *txn.Attempt, o *txn.Transaction) {
	e.T.Helper()
	rows, err := e.Side.Query(e.T.Context(), `SELECT id, kind, state, delivery, abandoned, fenced, encode(fingerprint, 'hex') AS fingerprint, shard_key, topic, tag,
		keys, properties::text, traceparent, broker, queue_id, selector, reason, uniq_key, commit_log_offset, queue_offset,
		convert_from(body, 'UTF8') AS body, rejection::text, created_at, decided_at, delivered_at, expires_at, lease_epoch, attempts, last_error,
		floor(extract(epoch FROM lease_until - decided_at))::int AS lease
		FROM txsvc.transactions WHERE id = $1`, a.Request.ID)
	if err != nil {
		e.T.Fatal(err)
	}
	got, err := pgx.CollectExactlyOneRow(rows, pgx.RowToMap)
	if err != nil {
		e.T.Fatal(err)
	}
	want := map[string]any{
		"id": a.Request.ID, "kind": a.Kind.Name, "state": "committed", "delivery": "pending", "abandoned": false, "fenced": nil,
		"fingerprint": pgtest.Value[string](e, `SELECT encode($1::bytea, 'hex')`, []byte(a.Fingerprint)), "shard_key": a.Request.ShardKey, "topic": a.Kind.Topic,
		"tag": "created", "keys": []any{"k1", "k2"}, "properties": `{"source": "tests"}`, "traceparent": a.Request.Traceparent,
		"broker": "broker-a", "queue_id": int32(a.Route.Queue.ID), "selector": "hash", "reason": a.Route.Reason,
		"uniq_key": a.Half.UniqKey, "commit_log_offset": a.Half.CommitLogOffset, "queue_offset": a.Half.QueueOffset,
		"body": string(a.Request.Payload), "rejection": nil, "created_at": o.CreatedAt, "decided_at": o.DecidedAt, "delivered_at": nil, "expires_at": nil,
		"lease_epoch": int64(1), "attempts": int32(0), "last_error": nil, "lease": int32(8), // and a half
	}
	if diff := cmp.Diff(want, got); diff != "" {
		e.T.Errorf("%s: row (-want +got):\n%s", a.Kind.Name, diff)
	}
}

func TestRunOfUnknownKind(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	pgtest.WantFailed(t, e.Store.Run(t.Context(), pgtest.Attempt("other", "a", `{}`)), txn.CodeInternal, "local transaction failed")
}

// An error that a Planner finds in the request is an answer to the client, and nothing is stored.
func TestPlanThatIsInvalid(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithProgram("picky", pgtest.Planner(func(task.Input) (task.Plan, error) {
		return task.Plan{}, txn.Invalid(txn.FieldError{Pointer: "/payload/items/0", Message: "is out of range"})
	})))
	pgtest.WantFailed(t, e.Store.Run(t.Context(), pgtest.Attempt("picky", "a", `{}`)), txn.CodeInvalidRequest, "/payload/items/0")
	if n := e.Count("txsvc.transactions"); n != 0 {
		t.Errorf("got %d rows, want none", n)
	}
}
