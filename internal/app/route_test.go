package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// route runs txsvc route for a topic that nobody has, and returns what it prints.
func route(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kinds.yaml")
	if err := os.WriteFile(file, []byte(`
topics:
  orders: {selector: {type: hash}}
  payments:
    selector:
      type: lanes
      by: selector_arg
      lanes: {canary: {queues: [0], share: 10}, default: {queues: [1, 2, 3]}}
kinds:
  order.create: {topic: orders, selector: {type: java_hash}, local: {sql: SELECT 1}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = write.WriteString(stdin); _ = write.Close() }()
	before := os.Stdin
	os.Stdin = read
	defer func() { os.Stdin = before; _ = read.Close() }()
	var stdout, stderr bytes.Buffer
	t.Setenv("TXSVC_NAMESERVERS", "")
	err = run(t.Context(), Code{}, append([]string{"route", "--config", file, "--queues", "4"}, args...), &stdout, &stderr)
	return stdout.String(), err
}

func TestRouteOfOneKey(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"orders", "--key", "acme"}, "queue     broker-a:3\nlane      -\nselector  hash\nreason    fnv1a64(shard_key) mod 4 = 3\nqueues    4\n"},
		{[]string{"orders", "--key", "acme", "--brokers", "2", "--json"},
			`{"lane":null,"queue":{"broker":"broker-b","id":3},"queues":8,"reason":"fnv1a64(shard_key) mod 8 = 7","selector":"hash","topic":"orders"}` + "\n"},
		{[]string{"orders", "--key", "acme", "--kind", "order.create"}, "selector  java_hash\n"},
		{[]string{"payments", "--key", "acme", "--arg", `"canary"`}, "queue     broker-a:0\nlane      canary\n"},
	} {
		if got, err := route(t, "", tc.args...); err != nil || !strings.Contains(got, tc.want) {
			t.Errorf("%v: got %q, %v, want %q", tc.args, got, err, tc.want)
		}
	}
	for want, args := range map[string][]string{
		"give either --key or --stdin":         {"orders"},
		"--arg is not JSON":                    {"payments", "--key", "a", "--arg", "canary"},
		"has no topic nothing; it has orders,": {"nothing", "--key", "a"},
		`topic orders has no kind "x"`:         {"orders", "--key", "a", "--kind", "x"},
		"must be a string that names the lane": {"payments", "--key", "a", "--arg", "5"},
		"--key must not contain":               {"orders", "--key", "a\x01b"},
	} {
		if _, err := route(t, "", args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
}

func TestRouteOfManyKeys(t *testing.T) {
	var keys strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&keys, "customer-%d\n\n", i)
	}
	got, err := route(t, keys.String(), "orders", "--stdin")
	if err != nil || !strings.HasPrefix(got, "4000 keys\n\nqueue            keys    share\nbroker-a:0       ") || !strings.Contains(got, "#####") ||
		!strings.Contains(got, "with 3 degrees of freedom, p = ") || !strings.HasSuffix(got, "as even as chance makes it\n") {
		t.Errorf("got %v\n%s", err, got)
	}
	got, err = route(t, keys.String(), "payments", "--stdin")
	if err != nil || !strings.Contains(got, "\nlane canary: ") || !strings.Contains(got, "\nlane default: ") {
		t.Errorf("got %v\n%s", err, got)
	}
	var d struct {
		Keys  int
		Lanes []struct {
			Keys, DegreesOfFreedom int
			Even                   bool
			Queues                 []struct{ Keys int }
		}
	}
	got, err = route(t, "hot\n"+strings.Repeat("hot\n", 99), "orders", "--stdin", "--json")
	if err == nil {
		err = json.Unmarshal([]byte(got), &d)
	}
	if err != nil || d.Keys != 100 || len(d.Lanes) != 1 || d.Lanes[0].Keys != 100 || d.Lanes[0].Even || len(d.Lanes[0].Queues) != 4 {
		t.Errorf("one hot key: got %v\n%s", err, got)
	}
	if got, err := route(t, "a\nb\x02\n", "orders", "--stdin"); err == nil || !strings.Contains(err.Error(), "line 2: the key must not contain") {
		t.Errorf("a key that no message can have: got %v\n%s", err, got)
	}
	if got, err := route(t, "a\nb\n", "payments", "--stdin", "--arg", "5"); err != nil || !strings.Contains(got, "\n2 refused: /selector_arg: must be a string") {
		t.Errorf("refused: got %v\n%s", err, got)
	}
}
