package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
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
	eventually(t, recoverLimit, func() error {
		if got := len(e.visible()); got != len(tests)-1 {
			return fmt.Errorf("%d transactions are visible, want %d", got, len(tests)-1)
		}
		return nil
	})
}
