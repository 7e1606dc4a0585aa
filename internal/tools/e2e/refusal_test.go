package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// TestNobodysDecisionIsNotStored: what PostgreSQL refuses for want of a sequence's number, a partition or a larger type is no
// answer for an id. After the repair the same request commits; what the business refused stays refused.
func TestNobodysDecisionIsNotStored(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	if _, err := e.db.Exec(t.Context(), `
		CREATE SEQUENCE numbers MINVALUE 0 START 1 MAXVALUE 1; SELECT nextval('numbers');
		CREATE TABLE numbered (id text PRIMARY KEY, n bigint DEFAULT nextval('numbers'));
		CREATE TABLE months (id text, month text) PARTITION BY LIST (month);
		CREATE TABLE rates (n int); INSERT INTO rates VALUES (0);
		CREATE TABLE typed (id text, n integer CONSTRAINT positive CHECK (n > 0))`); err != nil {
		t.Fatal(err)
	}
	e.config = e.writeConfig(fmt.Sprintf(`
kinds:
  numbered: {topic: %[1]s, local: {sql: "insert into numbered (id) values (@id)"}}
  months: {topic: %[1]s, local: {sql: "insert into months values (@id, @payload->>'month')"}}
  rates: {topic: %[1]s, local: {sql: "select 100 / n from rates"}}
  typed: {topic: %[1]s, local: {sql: "insert into typed values (@id, (@payload->>'n')::bigint)"}}
`, e.topic))
	s := e.start().ready()
	notFinal, final := false, true
	tests := []struct {
		kind, payload string
		status        int
		final         *bool
		repair        string
	}{
		{"numbered", `{}`, http.StatusInternalServerError, nil, `ALTER SEQUENCE numbers MAXVALUE 1000`},
		{"months", `{"month": "2024-05"}`, http.StatusInternalServerError, nil, `CREATE TABLE may PARTITION OF months FOR VALUES IN ('2024-05')`},
		{"rates", `{}`, http.StatusInternalServerError, nil, `UPDATE rates SET n = 4`},
		{"typed", `{"n": 3000000000}`, http.StatusUnprocessableEntity, &notFinal, `ALTER TABLE typed ALTER n TYPE bigint`},
		{"typed", `{"n": -1}`, http.StatusUnprocessableEntity, &final, `ALTER TABLE typed DROP CONSTRAINT positive`},
	}
	for i, tc := range tests {
		body := fmt.Sprintf(`{"kind": %q, "id": "tx-%d", "shard_key": "k", "payload": %s}`, tc.kind, i, tc.payload)
		a := s.mustPost("/v1/transactions", body, tc.status)
		var problem struct{ Final *bool }
		if err := json.Unmarshal([]byte(a.Raw), &problem); err != nil || (problem.Final == nil) != (tc.final == nil) || tc.final != nil && *problem.Final != *tc.final {
			t.Errorf("%s: got %s (%v), want another final", body, a.Raw, err)
		}
		stored, after := http.StatusNotFound, http.StatusCreated
		if tc.final == &final {
			stored, after = http.StatusOK, http.StatusUnprocessableEntity
		}
		if got, err := s.get(fmt.Sprint("tx-", i)); err != nil || got.HTTPStatus != stored && got.State != "rolled_back" || stored == http.StatusNotFound && got.HTTPStatus == http.StatusOK {
			t.Errorf("%s: GET answers %d %s (%v), want %d", body, got.HTTPStatus, got.Raw, err, stored)
		}
		if _, err := e.db.Exec(t.Context(), tc.repair); err != nil {
			t.Fatal(err)
		}
		if again := s.mustPost("/v1/transactions", body, after); again.HTTPStatus == http.StatusCreated && again.Replayed {
			t.Errorf("%s: got %s, want a transaction that was done now", body, again.Raw)
		}
	}
	if got := s.metric(`txsvc_transactions_total{kind="typed",outcome="failed"}`) + s.metric(`txsvc_transactions_total{kind="months",outcome="failed"}`); got != 2 {
		t.Errorf("%g failures are counted of the kinds typed and months, want 2", got)
	}
	await.Success(t, recoverLimit, func() error {
		if got := len(e.visible()); got != len(tests)-1 {
			return fmt.Errorf("%d transactions are visible, want %d", got, len(tests)-1)
		}
		return nil
	})
}

// TestWhatIsTooLargeIsNotTakenOn: depth, numbers and results are bounded before anything is committed; and what an earlier
// version has committed is answered.
func TestWhatIsTooLargeIsNotTakenOn(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	if _, err := e.db.Exec(t.Context(), `CREATE TABLE notes (id text PRIMARY KEY, doc jsonb)`); err != nil {
		t.Fatal(err)
	}
	e.config = e.writeConfig(fmt.Sprintf(`
kinds:
  note: {topic: %[1]s, local: {sql: "insert into notes values (@id, @payload) returning doc"}}
  note.large: {topic: %[1]s, result_limit: 1MiB, local: {sql: "insert into notes values (@id, @payload) returning doc"}}
`, e.topic))
	s := e.start().ready()
	post := func(kind, id, payload string, status int) answer {
		return s.mustPost("/v1/transactions", fmt.Sprintf(`{"kind": %q, "id": %q, "shard_key": "k", "payload": %s}`, kind, id, payload), status)
	}
	deep := strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999)
	numbers := "[" + strings.Repeat("1e131071,", 999) + "1]"
	long := `"` + strings.Repeat("x", 100_000) + `"`
	for payload, want := range map[string]string{
		deep:    `"message":"is nested more than 128 levels deep"`,
		numbers: `{"pointer":"/payload/0","message":"is a number with too many digits`,
		"[" + strings.Repeat("1e400,", 100_000) + "1]": "when they are written without exponents",
	} {
		if a := post("note", "bad", payload, http.StatusBadRequest); !strings.Contains(a.Raw, want) {
			t.Errorf("got %.400s, want %s", a.Raw, want)
		}
	}
	if a := s.mustPost("/v1/messages", fmt.Sprintf(`{"topic": %q, "shard_key": "k", "body": %s}`, e.topic, deep), http.StatusBadRequest); !strings.Contains(a.Raw, `"pointer":"/body/0`) {
		t.Errorf("got %.200s, want an error in /body", a.Raw)
	}
	a := post("note", "long", long, http.StatusUnprocessableEntity)
	if !strings.Contains(a.Raw, "at most 65536 are allowed (result_limit); nothing was changed") || !strings.Contains(a.Raw, `"final":false`) {
		t.Errorf("got %s", a.Raw)
	}
	if got, err := s.get("long"); err != nil || got.State == "committed" {
		t.Errorf("got %s (%v), want nothing committed", got.Raw, err)
	}
	post("note.large", "large", long, http.StatusCreated)
	small := post("note", "small", `{"n": 1.5e300}`, http.StatusCreated)
	if got := len(small.Result); got < 300 || got > 400 {
		t.Errorf("the result has %d bytes: %s", got, small.Result)
	}
	if _, err := e.db.Exec(t.Context(), `UPDATE txsvc.transactions SET result = $1::json WHERE id = 'small'`, `{"doc":`+deep+`}`); err != nil {
		t.Fatal(err)
	}
	response, err := http.Get(s.url + "/v1/transactions/small")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(body), deep) {
		t.Errorf("GET of a deep result: %d %.300s (%v)", response.StatusCode, body, err)
	}
	await.Success(t, recoverLimit, func() error {
		if got := len(e.visible()); got != 2 {
			return fmt.Errorf("%d transactions are visible, want large and small", got)
		}
		return nil
	})
}
