package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// What check-config can know without a database is told without one; the database is asked for the rest. Both name the place,
// and what neither looks at.
func TestCheckConfigTellsPlaces(t *testing.T) {
	t.Parallel()
	url := stacktest.NewMigrated(t)
	const (
		ok   = "not checked: whether the topics exist, whether the database takes the statements (--database asks it)\n"
		okDB = "not checked: whether the topics exist, permissions, and, of statements that do not query or change rows, names\n"
	)
	for _, tt := range []struct{ name, text, plain, database string }{
		{"good", "kinds:\n  a: {topic: t, local: {sql: \"insert into orders (id, customer, currency, total_minor) values (@id, @shard_key, 'EUR', 1) returning id\"}}\n", ok, okDB},
		{"misspelt", "kinds:\n  a:\n    topic: t\n    local:\n      sql: |\n        select 1;\n        selct 2\n", ".yaml:7:9: kinds.a.local.sql: no statement of PostgreSQL begins with SELCT; is SELECT meant?", ""},
		{"vacuum", "kinds:\n  a: {topic: t, local: {sql: vacuum}}\n", ".yaml:2:30: kinds.a.local.sql: VACUUM is not allowed", ""},
		{"index", "kinds:\n  a: {topic: t, local: {sql: create index concurrently on t (a)}}\n", ".yaml:2:30: kinds.a.local.sql: CREATE with CONCURRENTLY is not allowed", ""},
		{"topic", "topics: {refunds: {}}\nkinds:\n  a: {topic: refund, local: {sql: select 1}}\n", ".yaml:3:14: kinds.a.topic: the topic refund is not declared in topics; refunds is", ""},
		{"table", "kinds:\n  a: {topic: t, local: {sql: 'select @id; select * from nosuch'}}\n", ok, `.yaml:2:57: kinds.a.local.sql: relation "nosuch" does not exist`},
		{"type", "kinds:\n  a:\n    topic: t\n    local:\n      sql: |\n        select @payload->>'x',\n          @shard_key + 1\n", ok, ".yaml:7:22: kinds.a.local.sql: operator does not exist: text + integer"},
		{"service's own", "kinds:\n  a: {topic: t, local: {sql: 'select id from transactions'}}\n", ok, `.yaml:2:46: kinds.a.local.sql: relation "transactions" does not exist`},
		{"result", "kinds:\n  a: {topic: t, local: {sql: 'select 1 as a for update of orders'}}\n", ok, `kinds.a.local.sql: `},
	} {
		file := filepath.Join(t.TempDir(), "kinds.yaml")
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := txsvc(t, nil, "check-config", file)
		if (err == nil) != (tt.plain == ok) || !strings.Contains(out, tt.plain) {
			t.Errorf("%s: got %s (%v), want %s", tt.name, out, err, tt.plain)
		}
		if tt.plain != ok {
			continue
		}
		out, err = txsvc(t, []string{"TXSVC_DATABASE_URL=" + url}, "check-config", "--database", file)
		if (err == nil) != (tt.database == okDB) || !strings.Contains(out, tt.database) {
			t.Errorf("%s, with the database: got %s (%v), want %s", tt.name, out, err, tt.database)
		}
	}
	out, err := txsvc(t, nil, "check-config", "--database=postgres://x:hunter2@127.0.0.1:1/x", "../../config/dev.yaml")
	if err == nil || !strings.Contains(out, "connecting to the database") || strings.Contains(out, "hunter2") {
		t.Errorf("a database that is not there: got %s (%v), want an error without the password", out, err)
	}
	out, err = txsvc(t, []string{"TXSVC_DATABASE_URL=" + stacktest.NewDatabase(t)}, "check-config", "--database", "../../config/dev.yaml")
	if err == nil || !strings.Contains(out, `dev.yaml:26:21: kinds.payment.capture.local.sql: relation "payments" does not exist`) {
		t.Errorf("an empty database: got %s (%v), want an error at the statement", out, err)
	}
}
