package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// A database that takes no writes, whose sessions were ended once, as in a failover: /readyz and the answers say so, nothing is
// stored, and when it takes writes again, the service comes back by itself: what is pending is delivered without a
// request, and requests succeed, with as few connections as there may be.
func TestReadOnlyDatabase(t *testing.T) {
	for _, conns := range []int{4, 32} {
		t.Run(fmt.Sprint(conns, " connections"), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.databaseURL += fmt.Sprintf("&pool_max_conns=%d", conns)
			s := e.start().ready()
			s.inParallel(2*conns, "before", http.StatusCreated)
			e.settle(recoverLimit)

			e.run(`DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET default_transaction_read_only = on'; END $$`)
			e.run(`SELECT count(pg_terminate_backend(pid, 20000)) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'txsvc'`)
			s.notReady("the database is read-only")
			s.inParallel(2*conns, "meanwhile", http.StatusServiceUnavailable)
			if a := s.mustPost("/v1/orders", order("meanwhile-0", "k"), http.StatusServiceUnavailable); a.Code != "database_unavailable" || a.Detail != "the database is read-only; nothing was changed" {
				t.Errorf("got %s, want database_unavailable and why", a.Raw)
			}

			// One transaction becomes pending again.
			e.run(`UPDATE txsvc.transactions SET delivery = 'pending', delivered_at = NULL, lease_until = clock_timestamp() - interval '1 minute' WHERE id = 'before-0'`)
			e.run(`DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' RESET default_transaction_read_only'; END $$`)
			back := time.Now()
			await.Success(t, recoverLimit, func() error {
				if got := e.committed()["before-0"]; got != "delivered" {
					return fmt.Errorf("the pending transaction is %s", got)
				}
				return nil
			})
			t.Logf("the idle service delivered %s after the database had come back", time.Since(back).Round(time.Millisecond))
			s.ready()
			s.inParallel(2*conns, "after", http.StatusCreated)
			if took := time.Since(back); took > 15*time.Second {
				t.Errorf("after %s the service was as before, want 5 s on a quiet machine", took)
			}
			if got := e.settle(recoverLimit); got != 4*conns {
				t.Errorf("%d transactions are committed, want those before and after: %d", got, 4*conns)
			}
		})
	}
}

// run executes a statement in a transaction that may write, whatever the database's default is.
func (e *env) run(sql string) {
	e.t.Helper()
	err := pgx.BeginTxFunc(context.Background(), e.db, pgx.TxOptions{AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), sql)
		return err
	})
	if err != nil {
		e.t.Fatalf("%s: %v", strings.TrimSpace(sql), err)
	}
}

// inParallel posts n orders at once and expects the status of all.
func (s *service) inParallel(n int, prefix string, want int) {
	s.t.Helper()
	answers := make(chan string, n)
	for i := range n {
		go func() {
			a, err := s.post("/v1/orders", order(fmt.Sprint(prefix, "-", i), fmt.Sprint(i)))
			if err == nil && a.HTTPStatus == want {
				answers <- ""
				return
			}
			answers <- fmt.Sprintf("%d %s (%v)", a.HTTPStatus, a.Raw, err)
		}()
	}
	for range n {
		if wrong := <-answers; wrong != "" {
			s.t.Errorf("%s: got %s, want %d", prefix, wrong, want)
		}
	}
}
