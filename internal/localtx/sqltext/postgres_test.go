package sqltext

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/txsvc/txsvc/internal/devstack/stacktest"
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

// Statements are put together from pieces, so what each must give is known; PostgreSQL says whether Parse found them.
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
