package sessions_test

import (
	"strings"
	"testing"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// A commit that a crash of the server takes back would leave a message without its transaction.
func TestCommitsAreDurable(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	for database, want := range map[string]string{"off": "on", "on": "on", "remote_apply": "remote_apply", "local": "local"} {
		e.Exec(`DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET synchronous_commit = ` + database + `'; END $$`)
		var got string
		if err := pgtest.NewPool(t, e.URL).QueryRow(t.Context(), `SHOW synchronous_commit`).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("database has %s: got %s, want %s", database, got, want)
		}
	}
}

// The tests' user has the name of the service's schema, so that "$user" is that schema. A kind's names are looked for as
// the database says, and never among the service's own tables.
func TestKindsDoNotSeeTheServicesTables(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		`DEFAULT`:                                "public",
		`"$user", public`:                        "public",
		`TXSVC, public`:                          "public",
		`app, "$user", public, "txsvc"`:          "app",
		`"no, such ""one""", app, txsvc, public`: "app",
		`public, app`:                            "public",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			keep, err := task.ParseSQL(`INSERT INTO transactions (id) VALUES (@id); SELECT "where", count(*) FROM transactions GROUP BY 1`)
			if err != nil {
				t.Fatal(err)
			}
			e := pgtest.New(t, pgtest.WithProgram("keep", keep), pgtest.WithTables(`CREATE SCHEMA app;
				CREATE TABLE app.transactions (id text PRIMARY KEY, "where" text DEFAULT 'app');
				CREATE TABLE public.transactions (id text PRIMARY KEY, "where" text DEFAULT 'public');
				DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET search_path = `+path+`'; END $$;
				DO $$ BEGIN EXECUTE 'ALTER ROLE CURRENT_USER IN DATABASE ' || current_database() || ' RESET search_path'; END $$`))
			o := e.Store.Run(t.Context(), pgtest.Attempt("keep", "tx-1", pgtest.Order))
			pgtest.WantKind(t, o, txn.OutcomeCommitted)
			if got := string(o.Transaction.Result); got != `{"where":"`+want+`","count":1}` {
				t.Errorf("got %s, want a row in the schema %s", got, want)
			}
		})
	}
}

func TestPoolURL(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	if got := e.Pool.Config().MaxConns; got != 32 {
		t.Errorf("got %d connections, want 32", got)
	}
	if got := pgtest.NewPool(t, e.URL+"&pool_max_conns=3").Config().MaxConns; got != 3 {
		t.Errorf("got %d connections, want 3", got)
	}
	if _, err := postgres.Open(t.Context(), "postgres://someone:secret@host:port/", pgtest.Quick, nil); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want an error without the password", err)
	}
}
