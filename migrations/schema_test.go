package migrations_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/migrations"
)

// The tests' user has the name of the schema, so that "$user" brings it into the path.
func TestSchemaLeavesTheSearchPath(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, path, want string }{
		{"default", `DEFAULT`, `public`},
		{"others are kept", `app, "$user", "a, ""b"""`, `app, "a, ""b"""`},
		{"alone", `"$user"`, `""`},
		{"express", `txsvc, public`, `txsvc, public`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url := stacktest.NewDatabase(t)
			conn := connect(t, url)
			if _, err := conn.Exec(t.Context(), `DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET search_path = `+tt.path+`'; END $$`); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				up(t, url, migrations.Core)
				var path string
				if err := connect(t, url).QueryRow(t.Context(), `SHOW search_path`).Scan(&path); err != nil || path != tt.want {
					t.Errorf("got %s (%v), want %s", path, err, tt.want)
				}
			}
		})
	}
}

// What got into the schema because nobody named one is told, and can be moved, before anything is changed.
func TestStrays(t *testing.T) {
	t.Parallel()
	url := stacktest.NewDatabase(t)
	if err := migrations.UpTo(t.Context(), url, migrations.Core, 1); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, url)
	_, err := conn.Exec(t.Context(), `CREATE TABLE refunds (id bigint GENERATED ALWAYS AS IDENTITY, n serial); CREATE VIEW "my Refunds" AS TABLE refunds;
		CREATE TYPE size AS ENUM ('s'); CREATE DOMAIN cents AS bigint; CREATE SEQUENCE numbers;
		CREATE FUNCTION double(n integer) RETURNS integer LANGUAGE sql AS 'SELECT 2 * n'`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`ALTER ROUTINE txsvc.double(n integer) SET SCHEMA public`,
		`ALTER TABLE txsvc."my Refunds" SET SCHEMA public`,
		`ALTER TABLE txsvc.numbers SET SCHEMA public`,
		`ALTER TABLE txsvc.refunds SET SCHEMA public`,
		`ALTER TYPE txsvc.cents SET SCHEMA public`,
		`ALTER TYPE txsvc.size SET SCHEMA public`,
	}
	err = migrations.Up(t.Context(), url, migrations.Core)
	strays, ok := errors.AsType[*migrations.StraysError](err)
	if !ok {
		t.Fatalf("got %v, want that strays are told", err)
	}
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(strays.Moves))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := applied(t, url, migrations.Core); got == "core: all" {
		t.Errorf("got %s, want that nothing was changed", got)
	}
	if _, err := migrations.MoveStrays(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	up(t, url, migrations.Core, migrations.Example)
	if _, err := connect(t, url).Exec(t.Context(), `INSERT INTO refunds DEFAULT VALUES; SELECT double(1), * FROM "my Refunds"`); err != nil {
		t.Error(err)
	}
	if moves, err := migrations.MoveStrays(t.Context(), url); err != nil || len(moves) > 0 {
		t.Errorf("moving again: got %q (%v), want nothing", moves, err)
	}
}

// All that the migrations make is known as the service's own.
func TestOwnIsNotStray(t *testing.T) {
	t.Parallel()
	url := stacktest.NewDatabase(t)
	up(t, url, migrations.Core, migrations.Example)
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), `DO $$ BEGIN EXECUTE 'ALTER ROLE CURRENT_USER IN DATABASE ' || current_database() || ' RESET search_path'; END $$`); err != nil {
		t.Fatal(err)
	}
	if moves, err := migrations.MoveStrays(t.Context(), url); err != nil || len(moves) > 0 {
		t.Errorf("got %q (%v), want none", moves, err)
	}
}
