package localtx_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// A check-back and the local transaction of one half message at the same time, thousands of times, with a second attempt
// at the id behind: whoever is told "rollback" never has a committed row, whoever is told "commit" has.
func TestDecideRacesRun(t *testing.T) {
	t.Parallel()
	const ids = 2500
	e := pgtest.New(t, pgtest.WithTables(notes), pgtest.WithProgram("sql", noteSQL), pgtest.WithProgram("handler", noteHandler))
	var mu sync.Mutex
	resolutions := make(map[string]txn.Resolution) // by UNIQ_KEY; only final ones
	committed := make(map[string]bool)
	var count [4]int
	race := func(a *txn.Attempt) error {
		var o txn.Outcome
		var both errgroup.Group
		both.Go(func() error {
			o = e.Store.Run(context.Background(), a)
			return nil
		})
		both.Go(func() error {
			resolution, _, err := e.Store.Decide(context.Background(), a.Message, a.Half)
			if errors.Is(err, context.DeadlineExceeded) {
				err = nil // no answer in time, as of a machine that opens hundreds of connections at once: undecided
			}
			mu.Lock()
			defer mu.Unlock()
			count[resolution]++
			if resolution != txn.ResolutionUndecided {
				resolutions[a.Half.UniqKey] = resolution
			}
			return err
		})
		err := both.Wait()
		mu.Lock()
		defer mu.Unlock()
		committed[a.Half.UniqKey] = o.Kind == txn.OutcomeCommitted
		return err
	}
	var g errgroup.Group
	g.SetLimit(16)
	for i := range ids {
		kind := []string{"orders", "sql", "handler"}[i%3]
		g.Go(func() error {
			a := pgtest.Attempt(kind, fmt.Sprint("tx-", i), pgtest.Order)
			if err := race(a); err != nil || i%2 == 0 {
				return err
			}
			return race(pgtest.SameRequest(a))
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	inTable := make(map[string]bool)
	rows, err := e.Side.Query(t.Context(), `SELECT uniq_key FROM txsvc.transactions WHERE state = 'committed'`)
	if err != nil {
		t.Fatal(err)
	}
	var key string
	for rows.Next() {
		if err := rows.Scan(&key); err != nil {
			t.Fatal(err)
		}
		inTable[key] = true
	}
	for key, resolution := range resolutions {
		if resolution == txn.ResolutionRollback && inTable[key] {
			t.Errorf("half message %s was told to roll back, and its transaction is committed", key)
		}
		if resolution == txn.ResolutionCommit && !inTable[key] {
			t.Errorf("half message %s was told to commit, and its transaction is not committed", key)
		}
	}
	for key, said := range committed {
		if said != inTable[key] {
			t.Errorf("half message %s: Run said committed: %t, the table says %t", key, said, inTable[key])
		}
	}
	if n := e.Count("orders") + e.Count("notes"); n != len(inTable) {
		t.Errorf("got %d business rows, want %d", n, len(inTable))
	}
	t.Logf("resolutions: %d undecided, %d rollback, %d commit; %d of %d ids committed", count[0], count[1], count[2], len(inTable), ids)
	if count[1] < ids/20 || count[2] < ids/20 {
		t.Errorf("too one-sided to be a race")
	}
}
