package http_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/txsvc/txsvc/internal/txn"
)

// records returns the log, one map a record.
func (h *harness) records() []map[string]any {
	h.t.Helper()
	var records []map[string]any
	for line := range strings.Lines(h.log.String()) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			h.t.Fatalf("log record %q: %v", line, err)
		}
		records = append(records, record)
	}
	return records
}

func TestOneRecordPerRequest(t *testing.T) {
	broken := &txn.Error{Code: txn.CodeDatabaseUnavailable, Detail: "no answer", Cause: errors.New("connection refused")}
	for _, test := range []struct {
		name          string
		err           error
		level, status string
		code, cause   any
	}{
		{"success", nil, "DEBUG", "201", nil, nil},
		{"the client's fault", txn.Invalid(txn.FieldError{Pointer: "/payload/secret-name", Message: "secret-value"}), "INFO", "400", "invalid_request", nil},
		{"ours", broken, "ERROR", "503", "database_unavailable", "database_unavailable: no answer: connection refused"},
		{"not foreseen", errors.New("boom"), "ERROR", "500", "internal", "boom"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := setup(t)
			accept := h.flow.submit
			h.flow.submit = func(ctx context.Context, r txn.Request) (*txn.Transaction, error) {
				if test.err != nil {
					return nil, test.err
				}
				return accept(ctx, r)
			}
			a := h.post("/v1/orders?token=secret-query", `{"shard_key":"secret-key","payload":"secret-value"}`)
			records := h.records()
			if len(records) != 1 {
				t.Fatalf("got %d records, want 1: %v", len(records), records)
			}
			for key, want := range map[string]any{
				"level": test.level, "msg": "request", "method": "POST", "route": "/v1/orders", "status": float64(a.Code),
				"request_id": a.Header().Get("X-Request-Id"), "code": test.code, "error": test.cause,
			} {
				if got := records[0][key]; got != want {
					t.Errorf("got %s %v, want %v", key, got, want)
				}
			}
			if strings.Contains(h.log.String(), "secret") {
				t.Errorf("the log tells what the client sent: %s", h.log)
			}
		})
	}
}

func TestRequestID(t *testing.T) {
	for _, test := range []struct {
		name, given string
		kept        bool
	}{
		{"sane", "abc-123/x~", true},
		{"longest", strings.Repeat("x", 128), true},
		{"too long", strings.Repeat("x", 129), false},
		{"with a space", "a b", false},
		{"not ASCII", "ü", false},
		{"missing", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := setup(t).post("/v1/orders", `{`, "X-Request-Id", test.given)
			got := a.Header().Get("X-Request-Id")
			if got == "" || (got == test.given) != test.kept {
				t.Errorf("got request id %q, given %q, want it kept: %t", got, test.given, test.kept)
			}
			if p := a.problem(http.StatusBadRequest, "invalid_request"); p.RequestID != got {
				t.Errorf("got request_id %q, want %q", p.RequestID, got)
			}
		})
	}
}

func TestDurationIsLabelledByPattern(t *testing.T) {
	h := setup(t)
	h.get("/v1/transactions/o-1")
	h.get("/v1/transactions/o-2")
	h.get("/no/such/path")
	h.serve(httptest.NewRequest("BREW", "/v1/orders", nil))
	h.post("/v1/orders", `{"shard_key":"acme","payload":{}}`)
	got := map[string]uint64{}
	for _, metric := range h.family("http_request_duration_seconds").GetMetric() {
		var labels []string
		for _, label := range metric.GetLabel() {
			labels = append(labels, label.GetValue())
		}
		got[strings.Join(labels, " ")] = metric.GetHistogram().GetSampleCount()
	}
	want := map[string]uint64{
		"GET /v1/transactions/{id} 200": 2, "GET unmatched 404": 1, "other unmatched 405": 1, "POST /v1/orders 201": 1,
	}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for labels, count := range want {
		if got[labels] != count {
			t.Errorf("got %d for %q, want %d; all: %v", got[labels], labels, count, got)
		}
	}
}

func (h *harness) family(name string) *dto.MetricFamily {
	h.t.Helper()
	families, err := h.registry.Gather()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family
		}
	}
	h.t.Fatalf("no metric %s", name)
	return nil
}

// TestClientThatHungUp: an error that its hanging up has caused is no failure of ours.
func TestClientThatHungUp(t *testing.T) {
	h := setup(t)
	ctx, hangUp := context.WithCancel(t.Context())
	h.flow.submit = func(ctx context.Context, _ txn.Request) (*txn.Transaction, error) {
		hangUp()
		return nil, &txn.Error{Code: txn.CodeBrokerUnavailable, Cause: ctx.Err()}
	}
	h.serve(newRequest("/v1/orders", `{"shard_key":"acme","payload":{}}`).WithContext(ctx))
	if record := h.records()[0]; record["level"] != "INFO" || record["status"] != float64(499) {
		t.Errorf("got record %v, want level INFO and status 499", record)
	}
}
