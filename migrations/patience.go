package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/pause"
)

const (
	// lockTimeout is how long a statement waits for a lock on a table, and so how long all others wait that come to that
	// table meanwhile: they queue behind it. It is longer than PostgreSQL's deadlock_timeout (1 s), after which an
	// autovacuum that is in the way is cancelled.
	lockTimeout = 1500 * time.Millisecond
	// lockPause is for those others.
	lockPause = time.Second
	// lockPatience bounds the attempts at what is locked.
	lockPatience = 2 * time.Minute
	// statusTimeout bounds the question who holds a lock.
	statusTimeout = 5 * time.Second
)

// patiently calls do until it gets its locks, and gives up after lockPatience, or with ctx, saying who holds them. What a
// failed attempt did is either taken back or can be done again.
func patiently(ctx context.Context, db *sql.DB, tell func(string), do func() error) error {
	began, who := time.Now(), ""
	for {
		err := do()
		switch {
		case locked(err):
			who = holders(ctx, db)
		case ctx.Err() == nil || who == "":
			return err
		}
		if time.Since(began) < lockPatience && ctx.Err() == nil {
			tell("waiting for a lock: " + who)
			if pause.For(ctx, lockPause) {
				continue
			}
		}
		return fmt.Errorf("%w; gave up after %s: %s", err, time.Since(began).Round(time.Second), who)
	}
}

// locked tells an attempt that did not get a lock from one that fails whenever it is made.
func locked(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == "55P03" || pgErr.Code == "40P01") // lock_not_available, deadlock_detected
}

// holders names the sessions that can have been in the way, because they hold a lock on a table for longer than an attempt
// waits. The oldest transaction comes first: it was in the way, while a younger one may have waited behind the attempt. Their
// statements are not told, because these may hold anything.
func holders(ctx context.Context, db *sql.DB) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusTimeout)
	defer cancel()
	rows, err := db.QueryContext(ctx, `SELECT name FROM (
			SELECT concat_ws(', ', 'session ' || pid, nullif(application_name, ''), state,
				'its transaction is open for ' || round(extract(epoch FROM clock_timestamp() - xact_start)) || ' s'), xact_start, pid
			FROM pg_stat_activity JOIN (SELECT DISTINCT pid FROM pg_locks WHERE relation >= 16384 AND granted) held USING (pid)
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND coalesce(xact_start < clock_timestamp() - $1::interval, true)
			UNION ALL SELECT concat('the prepared transaction ', gid, ' of ', prepared), prepared, 0 FROM pg_prepared_xacts WHERE database = current_database()
		) held (name, since, pid) ORDER BY since, pid LIMIT 3`, lockTimeout.String())
	if err != nil {
		return "who holds it cannot be told"
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if rows.Scan(&name) == nil {
			names = append(names, name)
		}
	}
	if rows.Err() != nil || len(names) == 0 {
		return "nobody holds it any more"
	}
	return "it is held by " + strings.Join(names, "; ")
}
