package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Commands beside a txsvc dev answer from what it serves, and say so; and who creates tables in its database, as its user,
// creates them where kinds look, beside none of the service's own.
func TestDevTellsOthers(t *testing.T) {
	t.Parallel()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	const kinds = `
topics: {orders: {selector: {type: java_hash}}}
kinds:
  refund: {topic: orders, local: {sql: 'insert into transactions (id) values (@id); select count(*) from transactions'}}
`
	config := filepath.Join(t.TempDir(), "it's.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(kinds)
	dir := filepath.Join(t.TempDir(), ".txsvc")
	s := &service{t: t, url: "http://" + startDev(t, path, dir, "--config", config)}
	info, err := os.Stat(filepath.Join(dir, "env"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file of what runs: got %v (%v), want one that only its owner may read", info, err)
	}

	env, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	_, url, _ := strings.Cut(string(env), "export TXSVC_DATABASE_URL='")
	url, _, _ = strings.Cut(url, "'")
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `create table transactions (id text primary key)`); err != nil {
		t.Errorf("a table with the name of one of the service's: %v", err)
	}
	a := s.mustPost("/v1/transactions", `{"kind": "refund", "id": "r-1", "shard_key": "customer-1", "payload": {}}`, 201)
	if string(a.Result) != `{"count":1}` {
		t.Errorf("got the result %s, want one row in the table of the business", a.Result)
	}

	var route struct{ Queue queue }
	out, err := txsvc(t, nil, "route", "orders", "--key", "customer-1", "--json", "--dir", dir)
	said, answered, _ := strings.Cut(out, "\n")
	if err != nil || json.Unmarshal([]byte(answered), &route) != nil || route.Queue != a.Queue {
		t.Errorf("route: got %s (%v), want the queue %v", out, err, a.Queue)
	}
	if !strings.Contains(said, "using the txsvc dev that runs in "+dir+", and its kinds, of "+config) {
		t.Errorf("route said %q, want what it used", said)
	}
	if out, err = txsvc(t, nil, "tail", "orders", "--from-start", "--count", "1", "--dir", dir); err != nil || !strings.Contains(out, "using the txsvc dev") || !strings.Contains(out, "r-1") {
		t.Errorf("tail: got %s (%v), want the message, and what was used", out, err)
	}
	if out, err = txsvc(t, nil, "check-config", "--database", "--dir", dir, config); err != nil || !strings.Contains(out, "using the txsvc dev") {
		t.Errorf("check-config: got %s (%v), want what was used", out, err)
	}
	out, err = txsvc(t, nil, "route", "orders", "--key", "k", "--dir", dir, "--config", "../../config/dev.yaml")
	if err != nil || !strings.Contains(out, "the kinds of ../../config/dev.yaml, where it serves those of "+config) {
		t.Errorf("route with another file: got %s (%v), want that it says so", out, err)
	}
	write(strings.Replace(kinds, "java_hash", "hash", 1))
	if out, err = txsvc(t, nil, "route", "orders", "--key", "k", "--dir", dir); err == nil || !strings.Contains(out, "has changed since txsvc dev read it") {
		t.Errorf("route with a changed file: got %s (%v), want that it refuses", out, err)
	}
}
