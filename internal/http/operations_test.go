package http_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	httpapi "github.com/txsvc/txsvc/internal/http"
	"github.com/txsvc/txsvc/internal/txn"
)

func TestHealth(t *testing.T) {
	wantBody(t, setup(t).get("/healthz").want(http.StatusOK), `{"status":"ok"}`)
}

func TestReadiness(t *testing.T) {
	h := setup(t)
	h.checks = []httpapi.Check{{Name: "postgresql", OK: true}, {Name: "topic:orders", OK: true, Detail: "8 queues"}}
	wantBody(t, h.get("/readyz").want(http.StatusOK),
		`{"status":"ready","checks":[{"name":"postgresql","ok":true,"detail":""},{"name":"topic:orders","ok":true,"detail":"8 queues"}]}`)

	h.checks[1] = httpapi.Check{Name: "topic:orders", Detail: "the topic orders does not exist"}
	wantBody(t, h.get("/readyz").want(http.StatusServiceUnavailable),
		`{"status":"not_ready","checks":[{"name":"postgresql","ok":true,"detail":""},{"name":"topic:orders","ok":false,"detail":"the topic orders does not exist"}]}`)

	// What only degrades the service is told, and keeps it in rotation; it does not hide what does more.
	h.checks[1] = httpapi.Check{Name: "broker:b", Detail: "does not answer", Degrades: true}
	wantBody(t, h.get("/readyz").want(http.StatusOK),
		`{"status":"degraded","checks":[{"name":"postgresql","ok":true,"detail":""},{"name":"broker:b","ok":false,"detail":"does not answer"}]}`)
	h.checks[0].OK = false
	wantBody(t, h.get("/readyz").want(http.StatusServiceUnavailable),
		`{"status":"not_ready","checks":[{"name":"postgresql","ok":false,"detail":""},{"name":"broker:b","ok":false,"detail":"does not answer"}]}`)

	h.checks = nil
	wantBody(t, h.get("/readyz").want(http.StatusOK), `{"status":"ready","checks":[]}`)
}

func TestReadinessIsBounded(t *testing.T) {
	h := setup(t)
	config := h.config()
	config.Registerer = prometheus.NewRegistry()
	config.Readiness = readiness(func(ctx context.Context) []httpapi.Check {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the checks have no deadline")
		}
		return nil
	})
	h.handler = newHandler(t, config)
	h.get("/readyz").want(http.StatusOK)
}

func TestKinds(t *testing.T) {
	wantBody(t, setup(t).get("/v1/kinds").want(http.StatusOK), `{"items":[`+
		`{"name":"order.create","path":"/v1/orders","topic":"orders","tag":"created","selector":"hash","local":"handler","has_schema":false,"schema":null,"ordered":false,"delivery":"half","fallback":"reject","body":"payload","result_limit":65536,"immunity_ms":null,"timeout_ms":5000},`+
		`{"name":"payment.capture","path":null,"topic":"payments","tag":null,"selector":"hash","local":"sql","has_schema":false,"schema":null,"ordered":false,"delivery":"half","fallback":"reject","body":"payload","result_limit":4194304,"immunity_ms":10000,"timeout_ms":60000}]}`)
}

func TestMetrics(t *testing.T) {
	h := setup(t)
	h.get("/healthz")
	a := h.get("/metrics").want(http.StatusOK)
	if want := `http_request_duration_seconds_count{method="GET",route="/healthz",status="200"} 1`; !strings.Contains(a.Body.String(), want) {
		t.Errorf("got no %s in\n%s", want, a.Body)
	}
	wantHeader(t, a, "Cache-Control", "no-store")
}

func TestMetricsThatCannotBeGathered(t *testing.T) {
	h := setup(t)
	config := h.config()
	config.Registerer = prometheus.NewRegistry()
	config.Gatherer = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("broken") })
	h.handler = newHandler(t, config)
	h.get("/metrics").problem(http.StatusInternalServerError, "internal")
}

func TestKindPathsThatCannotBeServed(t *testing.T) {
	for _, path := range []string{
		"orders", "/v1/{x}", "/v1/*", "/a b", "/a?b", "/v1/transactions", "/v1/transactions/new", "/healthz", "/v1/orders",
	} {
		t.Run(path, func(t *testing.T) {
			config := setup(t).config()
			config.Registerer = prometheus.NewRegistry()
			config.Kinds = append(config.Kinds, &txn.Kind{Name: "other", Path: path, Destination: txn.Destination{Selector: hash{}}, Timeout: time.Second})
			_, err := httpapi.New(config)
			if err == nil || !strings.Contains(err.Error(), `path "`+path+`" of kind "other"`) {
				t.Errorf("got error %v, want one that names path and kind", err)
			}
		})
	}
}
