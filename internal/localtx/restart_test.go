package localtx_test

import (
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/devstack"
	"github.com/txsvc/txsvc/internal/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/txn"
)

// Connections that died while they were idle are seen before anything is sent through them: the first transactions after
// a restart of the server are not "unknown". While it is down they fail, and say that nothing was changed.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	stack := stacktest.Private(t, devstack.Options{})
	e := setupAt(t, stack.DatabaseURL())
	run := func(n int, id string) []txn.Outcome {
		var background []<-chan txn.Outcome
		for i := range n {
			background = append(background, e.inBackground(attempt("orders", id+string(rune('a'+i)), order)))
		}
		outcomes := make([]txn.Outcome, n)
		for i, done := range background {
			outcomes[i] = wait(t, "outcome", done)
		}
		return outcomes
	}
	for _, o := range run(8, "before-") {
		wantKind(t, o, txn.OutcomeCommitted)
	}
	if e.pool.Stat().IdleConns() < 2 {
		t.Fatalf("got %d idle connections, want some to die", e.pool.Stat().IdleConns())
	}
	if err := stack.Postgres().StopImmediate(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := attempt("orders", "down", order)
	for range 3 {
		start := time.Now()
		wantFailed(t, e.store.Run(t.Context(), a), txn.CodeDatabaseUnavailable, "did not answer; nothing was changed")
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("the answer took %s", took)
		}
	}
	if err := stack.Postgres().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, o := range run(8, "after-") {
		wantKind(t, o, txn.OutcomeCommitted)
	}
	wantKind(t, e.store.Run(t.Context(), a), txn.OutcomeCommitted)

	// Again, with connections that nobody used in between.
	if err := stack.Postgres().StopImmediate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := stack.Postgres().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, o := range run(8, "again-") {
		wantKind(t, o, txn.OutcomeCommitted)
	}
	if n := e.count("txsvc.transactions WHERE state = 'committed' AND NOT abandoned"); n != 25 {
		t.Errorf("got %d rows, want 25", n)
	}
}
