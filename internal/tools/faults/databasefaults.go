package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/pause"
)

var databaseFaults = []fault{
	{name: "postgres-immediate", about: "pg_ctl stop -m immediate, and the restart with recovery", draw: postgresImmediate},
	{name: "postgres-crash", about: "SIGKILL of one session: PostgreSQL ends all others and recovers", draw: postgresCrash},
	{name: "session-in-commit", about: "sessions ended within COMMIT, before they say that it is done", draw: sessionInCommit},
	{name: "database-read-only", about: "the database takes no writes, and all or some of the sessions are ended", draw: databaseReadOnly},
	{name: "slow-local", about: "local transactions of 10 s, beyond transactionTimeOut", draw: slowLocal},
}

func postgresImmediate(r *rand.Rand) event {
	down := between(r, 0, 4*time.Second)
	return event{
		detail: fmt.Sprintf("down for %s", down), holds: []string{partDatabase}, length: down + 2*time.Second,
		run: func(ctx context.Context, w *world) (string, error) {
			if err := w.primary.StopImmediate(context.WithoutCancel(ctx)); err != nil {
				return "", err
			}
			pause.For(ctx, down)
			return "", startProcess(w.primary.Process)
		},
	}
}

func postgresCrash(*rand.Rand) event {
	return event{
		detail: "one session", holds: []string{partDatabase}, length: 3 * time.Second,
		run: func(ctx context.Context, w *world) (string, error) {
			var pid int
			err := retry(ctx, 10*time.Second, func() error {
				return w.db.QueryRow(ctx, `SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
					ORDER BY state = 'active' DESC, xact_start LIMIT 1`).Scan(&pid)
			})
			if err != nil {
				return "", fmt.Errorf("finding a session: %w", err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				return "", fmt.Errorf("killing a session: %w", err)
			}
			pause.For(ctx, time.Second)
			return "", retry(ctx, restartLimit, func() error { _, err := w.db.Exec(ctx, "SELECT 1"); return err })
		},
	}
}

// A COMMIT that waits for a standby which does not exist has written its record and not answered. A session that is
// ended there has committed, and its client does not know. Other sessions are ended wherever they are, most of them
// before COMMIT.
const (
	awaitStandby = `ALTER SYSTEM SET synchronous_standby_names = 'nobody'`
	noStandby    = `ALTER SYSTEM RESET synchronous_standby_names`
	reload       = `SELECT pg_reload_conf()`
	endWaiting   = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`
	endRandom    = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND state = 'active' AND pid <> pg_backend_pid() AND random() < 0.3`
)

func sessionInCommit(r *rand.Rand) event {
	waits, held := r.IntN(3) > 0, between(r, 300*time.Millisecond, 1500*time.Millisecond)
	detail, statement := fmt.Sprintf("sessions at any point, for %s", held), endRandom
	if waits {
		detail, statement = fmt.Sprintf("sessions that have written their COMMIT, for %s", held), endWaiting
	}
	// The fault needs requests that reach the database, so it holds all links to it.
	holds := append(eachReplica(func(i int) string { return partLink(i, linkDatabase) }), partDatabase)
	return event{
		detail: detail, holds: holds, length: 3 * time.Second,
		run: func(ctx context.Context, w *world) (string, error) {
			if waits {
				if err := w.exec(ctx, awaitStandby, reload); err != nil {
					return "", err
				}
			}
			ended, err := endSessions(ctx, w.db, statement, held)
			if waits {
				err = errors.Join(err, w.exec(context.WithoutCancel(ctx), noStandby, reload))
			}
			if ended == 0 {
				return "", err
			}
			return fmt.Sprintf("%s ended", plural(ended, "sessions")), err
		},
	}
}

// endSessions runs the statement again and again.
func endSessions(ctx context.Context, db *pgxpool.Pool, statement string, held time.Duration) (ended int, err error) {
	for until := time.Now().Add(held); time.Now().Before(until) && ctx.Err() == nil; {
		n := 0
		if err = db.QueryRow(ctx, statement).Scan(&n); err != nil && !errors.Is(err, context.Canceled) {
			return ended, fmt.Errorf("ending sessions: %w", err)
		}
		ended += n
		pause.For(ctx, 20*time.Millisecond)
	}
	return ended, nil
}

// databaseReadOnly looks like a failover to clients that reach the standby first. Sessions that are not ended go on
// writing.
func databaseReadOnly(r *rand.Rand) event {
	held, share := between(r, 500*time.Millisecond, 5*time.Second), oneOf(r, 1, 1, 0.5)
	return event{
		detail: fmt.Sprintf("for %s, %.0f %% of the sessions ended", held, 100*share), holds: []string{partDatabase}, length: held + 2*time.Second,
		run: func(ctx context.Context, w *world) (string, error) {
			if err := w.alterDatabase(ctx, `SET default_transaction_read_only = on`); err != nil {
				return "", err
			}
			ended := 0
			err := w.db.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE application_name = 'txsvc' AND datname = current_database() AND random() < $1`, share).Scan(&ended)
			if err == nil {
				pause.For(ctx, held)
			}
			err = errors.Join(err, w.alterDatabase(context.WithoutCancel(ctx), `RESET default_transaction_read_only`))
			if ended == 0 {
				return "", err
			}
			return fmt.Sprintf("%s ended", plural(ended, "sessions")), err
		},
	}
}

// alterDatabase changes a setting of the database, also while the database is read-only.
func (w *world) alterDatabase(ctx context.Context, change string) error {
	return retry(ctx, 10*time.Second, func() error {
		return pgx.BeginTxFunc(ctx, w.db, pgx.TxOptions{AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I ', current_database()) || '`+change+`'; END $$`)
			return err
		})
	})
}

// slowFor is longer than transactionTimeOut, and shorter than the timeout of the kind.
const slowFor = 10 * time.Second

// slowLocal locks the table of the slow kind: its local transactions end when it is free again, all of them committed.
func slowLocal(*rand.Rand) event {
	return event{
		detail: slowFor.String(), holds: []string{partSlowTable, partDatabase}, length: slowFor,
		run: func(ctx context.Context, w *world) (string, error) {
			free, err := w.lockSlowTable(ctx)
			if err != nil {
				return "", err
			}
			defer free()
			pause.For(ctx, slowFor)
			waiting := 0
			if err := w.db.QueryRow(context.WithoutCancel(ctx), `SELECT count(*) FROM pg_locks WHERE relation = 'public.faults_slow'::regclass AND NOT granted`).
				Scan(&waiting); err != nil || waiting == 0 {
				return "", err
			}
			return plural(waiting, "local transactions") + " waited", nil
		},
	}
}

// lockSlowTable makes the local transactions of the slow kind wait until the table is free again, so their half
// messages stay undecided.
func (w *world) lockSlowTable(ctx context.Context) (free func(), err error) {
	tx, err := w.db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	free = func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }
	if _, err := tx.Exec(ctx, `LOCK TABLE public.faults_slow IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		free()
		return nil, err
	}
	return free, nil
}
