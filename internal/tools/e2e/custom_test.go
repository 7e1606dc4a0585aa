package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

const custom = "../../../examples/custom"

// inCustom runs the Go tool in the example's module.
func inCustom(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = custom
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestCustomBinary builds examples/custom as a user would: it passes its own tests, its binary has all commands, and its handlers
// and its selector work against the real stack.
func TestCustomBinary(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.binary = filepath.Join(t.TempDir(), "custom")
	inCustom(t, "build", "-o", e.binary, ".")
	inCustom(t, "test", "./...")
	shown, err := os.ReadFile(custom + "/custom.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("topic: accounts", "topic: "+e.topic, "  accounts:", "  "+e.topic+":").Replace(string(shown))
	e.config = e.writeConfig(text)
	tables, err := os.ReadFile(custom + "/tables.sql")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.db.Exec(t.Context(), string(tables)); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		name, old, new, want string
		args                 []string
	}{
		{"check-config", "", "", "account.transfer  " + e.topic + "  handler", nil},
		{"an option of another type", "eu: [0, 1]", "eu: nowhere", ".yaml:15:41: topics." + e.topic + ".selector: selector geo: string was used where sequence is expected", nil},
		{"an unknown option", "regions:", "region:", ".yaml:15:27: topics." + e.topic + `.selector: selector geo: unknown field "region"`, nil},
		{"an option that the selector refuses", "[0, 1]", "[0, -1]", ".yaml:15:45: topics." + e.topic + ".selector.regions.eu[1]: selector geo: the id of a queue is not negative", nil},
		{"an unknown selector", "type: geo", "type: goe", `.yaml:15:22: topics.` + e.topic + `.selector.type: selector type "goe" is unknown; there are consistent, geo, hash, java_hash, lanes, queue, round_robin`, nil},
		{"an unknown handler", "handler: deposit", "handler: deposits", `.yaml:6:22: kinds.account.deposit.local.handler: no handler has the name "deposits"; this binary has [deposit transfer]`, nil},
		{"version", "", "", "txsvc v0.0.0 in example.com/custom ", []string{"version"}},
		{"route", "", "", "lane      us\nselector  geo\n", []string{"route", e.topic, "--key", "us-7", "--queues", "4", "--config", e.config}},
	} {
		args := tt.args
		if args == nil {
			args = []string{"check-config", e.writeConfig(strings.Replace(text, tt.old, tt.new, 1))}
		}
		if out, _ := exec.CommandContext(t.Context(), e.binary, args...).CombinedOutput(); !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: got %s, want %s", tt.name, out, tt.want)
		}
	}

	s := e.start().ready()
	post := func(kind, id, key, payload string, status int) answer {
		return s.mustPost("/v1/transactions", fmt.Sprintf(`{"kind": %q, "id": %q, "shard_key": %q, "payload": %s}`, kind, id, key, payload), status)
	}
	regions := map[string][]int{"eu": {0, 1}, "us": {2, 3}}
	for _, key := range []string{"eu-1", "eu-2", "us-1"} {
		a := post("account.deposit", "deposit-"+key, key, `{"amount": 100}`, http.StatusCreated)
		if want := regions[key[:2]]; !slices.Contains(want, a.Queue.ID) {
			t.Errorf("%s: got queue %d, want one of %v", key, a.Queue.ID, want)
		}
	}
	moved := post("account.transfer", "transfer", "eu-1", `{"to": "us-1", "amount": 70}`, http.StatusCreated)
	if string(moved.Result) != `{"balance": 30}` && string(moved.Result) != `{"balance":30}` {
		t.Errorf("the transfer's result: got %s, want a balance of 30", moved.Result)
	}
	for _, tt := range []struct {
		kind, id, key, payload string
		status                 int
		want                   string
	}{
		{"account.transfer", "too-much", "eu-1", `{"to": "us-1", "amount": 70}`, http.StatusUnprocessableEntity, "has not enough money"},
		{"account.deposit", "too-large", "eu-1", `{"amount": 20000}`, http.StatusUnprocessableEntity, "need a second signature"},
		{"account.deposit", "nothing", "eu-1", `{"amount": 0}`, http.StatusBadRequest, `"/payload/amount"`},
		{"account.transfer", "nothing-either", "eu-1", `{"to": "us-1"}`, http.StatusBadRequest, `"/payload/amount"`},
		{"account.deposit", "nowhere", "mars-1", `{"amount": 1}`, http.StatusBadRequest, `"/shard_key"`},
	} {
		for range 2 { // the same id gets the same answer
			if a := post(tt.kind, tt.id, tt.key, tt.payload, tt.status); !strings.Contains(a.Raw, tt.want) {
				t.Errorf("%s: got %s, want %s", tt.id, a.Raw, tt.want)
			}
		}
	}
	await.Success(t, 10*time.Second, func() error {
		visible := e.visible()
		for id, key := range map[string]string{"deposit-eu-1": "eu", "deposit-eu-2": "eu", "deposit-us-1": "us", "transfer": "eu"} {
			if m := visible[id]; len(m) != 1 || !slices.Contains(regions[key], int(m[0].QueueID)) {
				return fmt.Errorf("%s: got the messages %v, want one in a queue of %v", id, m, regions[key])
			}
		}
		if len(visible) != 4 {
			return fmt.Errorf("%d visible transactions, want 4", len(visible))
		}
		return nil
	})
	s.stop()
}
