package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// TestWhatWaitsIsTold: a silent broker and a database that is away are told where people and alerts look: in the answers, in
// the rows, and in metrics that are there from the start and that do not stand still.
func TestWhatWaitsIsTold(t *testing.T) {
	t.Parallel()
	e, stack := newLentEnv(t, devstack.Options{BrokerConfig: impatient})
	e.config = e.writeConfig(fmt.Sprintf(`
topics:
  %[1]s: {selector: {type: hash, on_change: refuse}}
kinds:
  order.create: {path: /v1/orders, topic: %[1]s, delivery: outbox, local: {handler: orders}}
  half: {topic: %[1]s, fallback: outbox, local: {sql: "SELECT 1"}}
`, e.topic))
	s := e.start().ready()
	s.mustPost("/v1/orders", order("before", "k"), http.StatusCreated)
	e.settle(recoverLimit)
	s.kill() // its route is recorded, and nothing changes from here on
	s = e.start().ready()
	if log := s.log.String(); strings.Contains(log, "accepted queues") || strings.Contains(log, `"before":"none"`) {
		t.Errorf("the log tells of queues that have not changed:\n%s", log)
	}
	prometheus := startPrometheusWith(t, strings.TrimPrefix(s.url, "http://"), `
groups:
  - name: test
    interval: 1s
    rules:
      - {alert: waiting, expr: txsvc_delivery_oldest_pending_seconds > 5}
      - {alert: unread, expr: txsvc_delivery_reading_failed == 1}
      - {alert: notReady, expr: txsvc_ready == 0}
      - {alert: check, expr: 'txsvc_check_ok{check="database"} == 0'}
`)
	firing := func(alert string) string {
		return fmt.Sprintf(`count(ALERTS{alertname=%q, alertstate="firing"})`, alert)
	}
	wantSample := func(query, want string) {
		t.Helper()
		await.Success(t, time.Minute, func() error {
			if got, err := ask(prometheus, query); err != nil || got != want {
				return fmt.Errorf("%s: got %q (%v), want %q", query, got, err, want)
			}
			return nil
		})
	}
	// All series of what is configured are there before their first event.
	for query, want := range map[string]string{
		`count(txsvc_transactions_total{kind="half"})`:                       "6",
		`txsvc_transactions_total{kind="order.create",outcome="failed"}`:     "0",
		`count(txsvc_stage_seconds_count{kind="half"})`:                      "5",
		`count(txsvc_checkbacks_total{kind="half"})`:                         "3",
		`txsvc_fallbacks_total{kind="half"}`:                                 "0",
		`txsvc_deliveries_total{path="resolver",result="unconfirmed"}`:       "0",
		`sum(txsvc_messages_total{mode="async",status="DROPPED"})`:           "0",
		`sum(txsvc_messages_total{mode="sync",status="FLUSH_DISK_TIMEOUT"})`: "0",
		`txsvc_in_flight_limit`:                                              "1024",
		`txsvc_messages_waiting_limit`:                                       "10000",
		`txsvc_bodies_bytes`:                                                 "0",
		`txsvc_bodies_bytes_limit`:                                           "134217728",
		`txsvc_ready`:                                                        "1",
		`txsvc_check_ok{check="database"}`:                                   "1",
		`txsvc_delivery_reading_failed`:                                      "0",
		`txsvc_delivery_pending`:                                             "0",
		`txsvc_delivery_oldest_pending_seconds`:                              "0",
	} {
		wantSample(query, want)
	}
	// A silent broker: the answer, GET and the row say what is waited for.
	stack.Broker(0).Pause()
	defer stack.Broker(0).Resume()
	const silent = "broker broker-a does not answer"
	posted, last := 0, ""
	await.Success(t, recoverLimit, func() error {
		posted++
		last = fmt.Sprint("waiting-", posted)
		a := s.mustPost("/v1/orders", order(last, "k"), http.StatusCreated)
		if a.Delivery != "pending" || a.Replayed || !strings.Contains(a.Raw, `"code":"delayed","message":"`+silent) {
			return fmt.Errorf("the first answer to %s: got %s", last, a.Raw)
		}
		return nil
	})
	if a, err := s.get(last); err != nil || !strings.Contains(a.Raw, `"code":"delayed","message":"`+silent) {
		t.Errorf("GET: got %s (%v), want it to say that the broker is silent", a.Raw, err)
	}
	await.Success(t, recoverLimit, func() error {
		var lastError string
		err := e.db.QueryRow(context.Background(), `SELECT coalesce(last_error, '') FROM txsvc.transactions WHERE id = $1`, last).Scan(&lastError)
		if err != nil || lastError != silent {
			return fmt.Errorf("last_error: got %q (%w)", lastError, err)
		}
		return nil
	})
	wantSample(`txsvc_delivery_pending`, strconv.Itoa(posted))
	// The database is away: counts vanish, the age grows, and the alerts fire.
	if err := stack.Postgres().StopImmediate(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSample(firing("unread"), "1")
	wantSample(firing("waiting"), "1")
	wantSample(firing("notReady"), "1")
	wantSample(firing("check"), "1")
	wantSample(`txsvc_delivery_pending`, "")
	wantSample(`txsvc_delivery_parked`, "")
	var before float64
	await.Success(t, recoverLimit, func() error {
		got, err := ask(prometheus, `txsvc_delivery_oldest_pending_seconds`)
		if err != nil {
			return err
		}
		now, err := strconv.ParseFloat(got, 64)
		if err != nil {
			return err
		}
		if before == 0 {
			before = now
		}
		if now <= before {
			return fmt.Errorf("the age is %v, and was %v", now, before)
		}
		return nil
	})
	if err := stack.Postgres().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stack.Broker(0).Resume()
	e.settle(time.Minute)
	wantSample(`txsvc_delivery_reading_failed`, "0")
	wantSample(`txsvc_delivery_pending`, "0")
	wantSample(`txsvc_delivery_oldest_pending_seconds`, "0")
	wantSample(`txsvc_ready`, "1")
}

// startPrometheusWith starts one with alerting rules.
func startPrometheusWith(t *testing.T, target, rules string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	return startPrometheus(t, target, file)
}
