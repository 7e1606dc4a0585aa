package sqltext

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(stacktest.With(m)) }

var values = map[string]any{
	ID: "tx-1", ShardKey: "customer-7", Payload: `{"k": "v;@id", "n": 3}`, LocalArg: `{"n": 3}`, SelectorArg: nil,
}

// piece is an expression that is easily misread, and the text that PostgreSQL makes of it.
type piece struct{ sql, want string }

var pieces = []piece{
	{`'a;@id'`, "a;@id"},
	{`'it''s;'`, "it's;"},
	{`'\'`, `\`},
	{`E'\';\\'`, `';\`},
	{`e'\\'';'`, `\';`},
	{"E'x'\n  '\\';'", "x';"},
	{"E'x' -- it's\n'\\';'", "x';"},
	{"'x'\n'\\'", `x\`},
	{`U&'\0041;''@id'`, "A;'@id"},
	{`n'@id;'`, "@id;"},
	{`$$;'@id$$`, ";'@id"},
	{`$a$;$$;$b$$a$`, ";$$;$b$"},
	{`$Ä1$;$Ä1$`, ";"},
	{`(select "c;@id""" from (values ('q')) t("c;@id"""))`, "q"},
	{`(select a$b$c from (values ('r')) t(a$b$c))`, "r"},
	{`@id`, "tx-1"},
	{`(@shard_key|| @id)`, "customer-7tx-1"},
	{`(@payload->>'k')`, "v;@id"},
	{`(@payload['n'])::text`, "3"},
	{`(@payload@> @local_arg)::text`, "true"},
	{`(@payload @? '$.n')::text`, "true"},
	{`(array['a']<@array['a','b'])::text`, "true"},
	{`(to_tsvector('simple','fat')@@'fat')::text`, "true"},
	{`(@ -5)::text`, "5"},
	{`coalesce(@selector_arg::text,'none')`, "none"},
	{`case when @id = 'tx-1' then ';' end`, ";"},
	{`(array[@id,@shard_key])[2]`, "customer-7"},
	{`(1.5e-1+.5)::text`, "0.65"},
}

// between may stand between any two tokens.
var between = []string{" ", "\n", " /* ; ' @nobody */ ", " -- ; $$ \" @id\n", "/* /* ' */ ; */", "\t-- x\r\n"}

// Statements are put together from pieces with known results, so PostgreSQL's answers show whether Parse has found
// them.
func TestParseAgreesWithPostgres(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), stacktest.NewDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	rapid.Check(t, func(t *rapid.T) {
		text, want := drawText(t)
		statements, err := Parse(text)
		if err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
		var got [][]string
		for _, s := range statements {
			got = append(got, run(t, conn, s))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s\n(-want +got)\n%s", text, diff)
		}
	})
}

// drawText returns one to four statements and the rows that they give.
func drawText(t *rapid.T) (string, [][]string) {
	gap := rapid.SampledFrom(between)
	var text strings.Builder
	var want [][]string
	for range rapid.IntRange(1, 4).Draw(t, "statements") {
		drawn := rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 6).Draw(t, "pieces")
		var row []string
		text.WriteString("select")
		for i, p := range drawn {
			if i > 0 {
				text.WriteString(",")
			}
			text.WriteString(gap.Draw(t, "before") + p.sql + gap.Draw(t, "after"))
			row = append(row, p.want)
		}
		text.WriteString(";" + gap.Draw(t, "end"))
		want = append(want, row)
	}
	return text.String(), want
}

// run gives the statement's only row.
func run(t *rapid.T, conn *pgx.Conn, s Statement) []string {
	args := make([]any, len(s.Args))
	for i, name := range s.Args {
		args[i] = values[name]
	}
	rows, err := conn.Query(context.Background(), s.Text, args...)
	if err != nil {
		t.Fatalf("%s: %v", s.Text, err)
	}
	row, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	if err != nil {
		t.Fatalf("%s: %v", s.Text, err)
	}
	texts := make([]string, len(row))
	for i, value := range row {
		texts[i], _ = value.(string)
	}
	return texts
}

// Statements that Parse refuses as unknown, or as not allowed in a transaction, are refused by PostgreSQL for the same
// reason. Statements that pass are not.
func TestCommandsAgreeWithPostgres(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), stacktest.NewDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	failure := func(sql string) *pgconn.PgError {
		t.Helper()
		_, err := conn.Exec(t.Context(), "BEGIN; "+sql, pgx.QueryExecModeSimpleProtocol)
		if _, ending := conn.Exec(t.Context(), "ROLLBACK"); ending != nil {
			t.Fatal(ending)
		}
		pgErr, _ := errors.AsType[*pgconn.PgError](err)
		return pgErr
	}
	begin := len("BEGIN; ")
	for _, command := range commands {
		if e := failure(command + " )"); e == nil || e.Code != "42601" || int(e.Position) != begin+len(command)+2 {
			t.Errorf("%s ): got %+v, want a syntax error at the parenthesis", command, e)
		}
	}
	for _, sql := range []string{"SELCT 1", "INSERT_INTO t", `"select" 1`} {
		if e := failure(sql); e == nil || e.Code != "42601" || int(e.Position) != begin+1 {
			t.Errorf("%s: got %+v, want a syntax error at its begin", sql, e)
		}
		if _, err := Parse(sql); err == nil {
			t.Errorf("%s: it was let pass", sql)
		}
	}
	if _, err := conn.Exec(t.Context(), `CREATE TABLE t (id int PRIMARY KEY); CREATE MATERIALIZED VIEW v AS SELECT id FROM t;
		CREATE UNIQUE INDEX ON v (id); CREATE TABLE p (id int) PARTITION BY LIST (id); CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)`); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"VACUUM t", "CREATE INDEX CONCURRENTLY i ON t (id)", "DROP INDEX CONCURRENTLY t_pkey", "REINDEX TABLE CONCURRENTLY t",
		"REINDEX SCHEMA public", "ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY", "CREATE DATABASE d", "DROP DATABASE IF EXISTS d",
		"CREATE TABLESPACE s LOCATION '/s'", "ALTER SYSTEM RESET ALL", "CLUSTER",
	} {
		if e := failure(sql); e == nil || e.Code != "25001" {
			t.Errorf("%s: got %+v, want that it runs outside of transactions only", sql, e)
		}
		if _, err := Parse(sql); err == nil || !strings.Contains(err.Error(), "outside of transactions") {
			t.Errorf("%s: got %v, want that it is refused", sql, err)
		}
	}
	for _, sql := range []string{
		"REFRESH MATERIALIZED VIEW CONCURRENTLY v", "CREATE INDEX i ON t (id)", "REINDEX TABLE t", "CLUSTER t USING t_pkey",
		"ALTER TABLE p DETACH PARTITION p1", "TRUNCATE t",
	} {
		if e := failure(sql); e != nil {
			t.Errorf("%s: got %+v, want none", sql, e)
		}
		if _, err := Parse(sql); err != nil {
			t.Errorf("%s: got %v, want that it is let pass", sql, err)
		}
	}
}
