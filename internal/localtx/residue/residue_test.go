package residue_test

import (
	"fmt"
	"testing"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

const notes = `CREATE TABLE notes (id text PRIMARY KEY, key text, payload jsonb, arg jsonb, other jsonb)`

// residues are what a local transaction can leave behind, and what finds it in a session afterwards.
var residues = []struct{ name, leave, look string }{
	{"setting", `SELECT set_config('app.tenant', 'acme', false)`, `SELECT coalesce(current_setting('app.tenant', true), '') <> ''`},
	{"service's setting", `SELECT set_config('synchronous_commit', 'off', false)`, `SELECT current_setting('synchronous_commit') = 'off'`},
	{"search path", `SELECT set_config('search_path', 'pg_temp', false)`, `SELECT current_setting('search_path') <> 'public'`},
	{"limit", `SELECT set_config('statement_timeout', '0', false)`, `SELECT current_setting('statement_timeout') = '0'`},
	{"role", `SELECT set_config('role', 'pg_monitor', false)`, `SELECT current_user <> session_user`},
	{"lock", `SELECT pg_advisory_lock(4711)`, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`},
	{"table", `CREATE TEMPORARY TABLE left_behind (n int)`, `SELECT to_regclass('pg_temp.left_behind') IS NOT NULL`},
	{"function", `CREATE FUNCTION pg_temp.left_behind() RETURNS int LANGUAGE sql AS 'SELECT 1'`, `SELECT EXISTS (SELECT FROM pg_proc WHERE pronamespace = pg_my_temp_schema())`},
	{"channel", `LISTEN left_behind`, `SELECT EXISTS (SELECT FROM pg_listening_channels())`},
	{"cursor", `DECLARE left_behind CURSOR WITH HOLD FOR SELECT 1`, `SELECT EXISTS (SELECT FROM pg_cursors WHERE name = 'left_behind')`},
	{"prepared statement", `PREPARE left_behind AS SELECT 1`, `SELECT EXISTS (SELECT FROM pg_prepared_statements WHERE from_sql)`},
}

// What a transaction leaves in its session is not met by the next, in the same session or another, whether it committed or failed.
func TestSessionsAreClean(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithURL(func(url string) string { return url + "&pool_max_conns=1" }), pgtest.WithTables(`CREATE TABLE public.fails (n int CHECK (n > 0));
		GRANT USAGE ON SCHEMA txsvc TO pg_monitor; GRANT ALL ON ALL TABLES IN SCHEMA txsvc TO pg_monitor; GRANT ALL ON public.fails TO pg_monitor`),
		pgtest.WithPrograms(func(add func(string, task.Program)) {
			for _, r := range residues {
				add("planner "+r.name, pgtest.Statements(r.leave))
				add("handler "+r.name, pgtest.Each(r.leave))
				add("failing "+r.name, pgtest.Statements(r.leave, `INSERT INTO public.fails VALUES (0)`))
			}
		}))
	for _, r := range residues {
		for sort, want := range map[string]txn.OutcomeKind{"planner ": txn.OutcomeCommitted, "handler ": txn.OutcomeCommitted, "failing ": txn.OutcomeRejected} {
			pgtest.WantKind(t, e.Store.Run(t.Context(), pgtest.Attempt(sort+r.name, sort+r.name, pgtest.Order)), want)
			var left bool
			if err := e.Pool.QueryRow(t.Context(), r.look).Scan(&left); err != nil || left {
				t.Errorf("%s%s: it is still there (%v)", sort, r.name, err)
			}
		}
	}
}

// Connections of dblink are ended where it is installed, and while it is dropped.
func TestConnectionsOfDblink(t *testing.T) {
	t.Parallel()
	var url string
	e := pgtest.New(t, pgtest.WithURL(func(url string) string { return url + "&pool_max_conns=1" }), pgtest.WithTables(`CREATE EXTENSION dblink SCHEMA public`),
		pgtest.WithProgram("connects", pgtest.Planner(func(task.Input) (task.Plan, error) {
			return task.Plan{Statements: []task.Statement{{SQL: `SELECT public.dblink_connect('left_behind', $1)`, Args: []any{url}}}}, nil
		})), pgtest.WithProgram("other", pgtest.Statements(`SELECT set_config('app.tenant', $1, false)`)))
	url = e.URL
	for _, id := range []string{"tx-1", "tx-2"} {
		if err := e.Store.Residue.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		pgtest.WantKind(t, e.Store.Run(t.Context(), pgtest.Attempt("connects", id, pgtest.Order)), txn.OutcomeCommitted)
	}
	e.Exec(`DROP EXTENSION dblink`)
	pgtest.WantKind(t, e.Store.Run(t.Context(), pgtest.Attempt("other", "tx-3", pgtest.Order)), txn.OutcomeCommitted)
}

// A temporary table that ends with its transaction costs no session.
func TestTemporaryTableThatIsDropped(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithURL(func(url string) string { return url + "&pool_max_conns=1" }),
		pgtest.WithProgram("temporary", pgtest.Statements(`CREATE TEMPORARY TABLE gone (n int) ON COMMIT DROP`)))
	for i := range 3 {
		pgtest.WantKind(t, e.Store.Run(t.Context(), pgtest.Attempt("temporary", fmt.Sprint(i), pgtest.Order)), txn.OutcomeCommitted)
	}
	if n := e.Pool.Stat().NewConnsCount(); n != 1 {
		t.Errorf("got %d sessions, want one for all", n)
	}
}

// Large objects that a transaction opened are closed with it, by PostgreSQL.
func TestLargeObjectsAreClosed(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithURL(func(url string) string { return url + "&pool_max_conns=1" }),
		pgtest.WithProgram("opens", pgtest.Statements(`SELECT lo_open(lo_create(0), 393216)`)))
	pgtest.WantKind(t, e.Store.Run(t.Context(), pgtest.Attempt("opens", "tx-1", pgtest.Order)), txn.OutcomeCommitted)
	if _, err := e.Pool.Exec(t.Context(), `SELECT loread(0, 1)`); err == nil {
		t.Error("the large object is still open")
	}
}

// Plain statements are not followed by a reset, as long as no code in the database can leave anything: what a trigger leaves
// before that is known is closed with the sessions.
func TestPlainStatementsNeedNoReset(t *testing.T) {
	t.Parallel()
	const leaving = `CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('app.tenant', NEW.id, false); RETURN NEW; END $$;
		CREATE TRIGGER leave AFTER INSERT ON notes FOR EACH ROW EXECUTE FUNCTION leave()`
	e := pgtest.New(t, pgtest.WithURL(func(url string) string { return url + "&pool_max_conns=1" }), pgtest.WithTables(notes),
		pgtest.WithProgram("plain", pgtest.Statements(`INSERT INTO notes VALUES ($1)`)), pgtest.WithProgram("leaves", pgtest.Statements(`SELECT set_config('app.tenant', $1, false)`)))
	tenant := func() (tenant string) {
		t.Helper()
		if err := e.Pool.QueryRow(t.Context(), `SELECT coalesce(current_setting('app.tenant', true), '')`).Scan(&tenant); err != nil {
			t.Fatal(err)
		}
		return tenant
	}
	run := func(kind, id string) {
		t.Helper()
		pgtest.WantKind(t, e.Store.Run(t.Context(), pgtest.Attempt(kind, id, pgtest.Order)), txn.OutcomeCommitted)
	}
	watch := func() {
		t.Helper()
		if err := e.Store.Residue.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// A setting of this test's shows whether there was a reset.
	keep := func() {
		t.Helper()
		if _, err := e.Pool.Exec(t.Context(), `SET app.tenant = 'kept'`); err != nil {
			t.Fatal(err)
		}
	}
	keep()
	run("plain", "tx-0")
	if got := tenant(); got != "" {
		t.Errorf("while the database's code was not known, there was no reset: the setting is %q", got)
	}
	watch()
	keep()
	run("plain", "tx-1")
	if got := tenant(); got != "kept" {
		t.Errorf("a plain statement was followed by a reset: the setting is %q", got)
	}
	run("leaves", "tx-2")
	if got := tenant(); got != "" {
		t.Errorf("a statement that leaves something was not followed by a reset: the setting is %q", got)
	}
	e.Exec(leaving)
	run("plain", "tx-3")
	watch()
	if got := tenant(); got != "" {
		t.Errorf("sessions from before the look were used again: the setting is %q", got)
	}
	run("plain", "tx-4")
	if got := tenant(); got != "" {
		t.Errorf("a plain statement was not followed by a reset although its trigger leaves something: the setting is %q", got)
	}
}

// Which code in the database can leave something in a session.
func TestCodeThatLeaves(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithURL(func(url string) string { return url + "&pool_max_conns=1" }), pgtest.WithTables(notes),
		pgtest.WithProgram("plain", pgtest.Statements(`INSERT INTO notes VALUES ($1)`)))
	for i, tt := range []struct {
		ddl    string
		leaves bool
	}{
		{`CREATE FUNCTION harmless() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE n int; BEGIN
			UPDATE notes SET id = id; UPDATE public.notes AS n set id = n.id; INSERT INTO notes VALUES (NEW.id) ON CONFLICT (id) DO UPDATE SET id = NEW.id;
			SET LOCAL lock_timeout = 1; PERFORM pg_advisory_xact_lock(1), set_config('app.tenant', coalesce(NEW.id, ''), true); RETURN NEW; END $$`, false},
		{`CREATE EXTENSION pgcrypto; CREATE EXTENSION "uuid-ossp"`, false},
		{`CREATE VIEW harmless_view AS SELECT id, now() AS at FROM notes`, false},
		{`CREATE FUNCTION leaves() RETURNS void LANGUAGE plpgsql AS $$ BEGIN SET app.tenant = 'a'; END $$`, true},
		{`CREATE FUNCTION leaves() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SE' || 'T app.tenant = 1'; END $$`, true},
		{`CREATE FUNCTION leaves() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CREATE TEMP TABLE x (n int); END $$`, true},
		{`CREATE FUNCTION leaves() RETURNS void LANGUAGE sql AS 'SELECT pg_try_advisory_lock(1)'`, true},
		{`CREATE FUNCTION leaves() RETURNS void LANGUAGE sql BEGIN ATOMIC SELECT pg_try_advisory_lock(1); END`, true},
		{`CREATE FUNCTION leaves(bigint) RETURNS void LANGUAGE internal AS 'pg_advisory_lock_int8'`, true},
		{`CREATE VIEW leaves AS SELECT set_config('app.tenant', id, false) FROM notes`, true},
		{`ALTER TABLE notes ADD extra text DEFAULT set_config('app.tenant', 'x', false)`, true},
		{`ALTER TABLE notes ADD CHECK (set_config('app.tenant', id, false) <> '')`, true},
		{`CREATE POLICY p ON notes USING (set_config('app.tenant', id, false) <> '')`, true},
		{`CREATE DOMAIN leaves AS text DEFAULT set_config('app.tenant', 'x', false)`, true},
		{`CREATE EXTENSION dblink`, true},
	} {
		schema := fmt.Sprint("s", i)
		e.Exec(`BEGIN; CREATE SCHEMA ` + schema + `; CREATE TABLE ` + schema + `.notes (id text PRIMARY KEY); SET LOCAL search_path = ` + schema + `, public; ` + tt.ddl + `; COMMIT`)
		if err := e.Store.Residue.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Pool.Exec(t.Context(), `SET app.probe = 'kept'`); err != nil {
			t.Fatal(err)
		}
		pgtest.WantKind(t, e.Store.Run(t.Context(), pgtest.Attempt("plain", schema, pgtest.Order)), txn.OutcomeCommitted)
		var reset bool
		if err := e.Pool.QueryRow(t.Context(), `SELECT coalesce(current_setting('app.probe', true), '') = ''`).Scan(&reset); err != nil {
			t.Fatal(err)
		}
		if reset != tt.leaves {
			t.Errorf("%s: got reset %t, want %t", tt.ddl, reset, tt.leaves)
		}
		e.Exec(`DROP SCHEMA ` + schema + ` CASCADE`)
	}
}
