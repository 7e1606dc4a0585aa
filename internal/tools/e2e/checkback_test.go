package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// impatient makes a broker ask back within a second or two.
var impatient = map[string]string{
	"transactionTimeOut": "1000", "transactionCheckInterval": "1000", "transactionOpBatchInterval": "200",
}

// impatientStack is shared by the tests that wait for check-backs.
var impatientStack = sync.OnceValues(func() (*devstack.Stack, error) {
	s, release, err := stacktest.StartTemporary(context.Background(), devstack.Options{BrokerConfig: impatient})
	if err == nil {
		atEnd(release)
	}
	return s, err
})

func newImpatientEnv(t *testing.T) *env {
	t.Helper()
	s, err := impatientStack()
	if err != nil {
		t.Fatal(err)
	}
	return newEnvOn(t, stacktest.NewMigrated(t), s.Nameservers())
}

// slow is a request whose local transaction waits for a lock on the shard key, which the test holds.
func slow(id, shardKey string) string {
	return fmt.Sprintf(`{"kind": "slow", "id": %q, "shard_key": %q, "payload": {}}`, id, shardKey)
}

// hold takes the lock that slow waits for; release gives it back.
func (e *env) hold(shardKey string) (release func()) {
	e.t.Helper()
	tx, err := e.db.Begin(context.Background())
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := tx.Exec(context.Background(), `SELECT pg_advisory_xact_lock(hashtext($1))`, shardKey); err != nil {
		e.t.Fatal(err)
	}
	return sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
}

// page gets what the service has at the path.
func (s *service) page(path string) (status int, text string) {
	s.t.Helper()
	response, err := http.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// metric returns the sum of the samples whose name and labels begin with prefix.
func (s *service) metric(prefix string) float64 {
	s.t.Helper()
	_, text := s.page("/metrics")
	return sumOf(s.t, text, prefix)
}

// sumOf adds up the samples of a page of metrics whose name and labels begin with prefix.
func sumOf(t testing.TB, text, prefix string) float64 {
	t.Helper()
	sum := 0.0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			var value float64
			if _, err := fmt.Sscan(line[strings.LastIndexByte(strings.TrimSpace(line), ' ')+1:], &value); err != nil {
				t.Fatal(err)
			}
			sum += value
		}
	}
	return sum
}

// TestCheckbackWhileTheLocalTransactionRuns: a paused local transaction is not answered rollback, however often the
// broker asks, and commits when it goes on.
func TestCheckbackWhileTheLocalTransactionRuns(t *testing.T) {
	t.Parallel()
	e := newImpatientEnv(t)
	s := e.start().ready()
	release := e.hold("paused")
	defer release()
	done := make(chan answer, 1)
	go func() {
		a, err := s.post("/v1/transactions", slow("tx-paused", "paused"))
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	await.Success(t, 15*time.Second, func() error {
		if got := s.metric(`txsvc_checkbacks_total{answer="unknown"`); got < 2 {
			return fmt.Errorf("%v check-backs were answered unknown", got)
		}
		return nil
	})
	if got := s.metric(`txsvc_checkbacks_total{answer="rollback"`); got != 0 {
		t.Errorf("%v check-backs were answered rollback while the local transaction was running", got)
	}
	release()
	a := <-done
	if a.HTTPStatus != http.StatusCreated || a.State != "committed" {
		t.Fatalf("got %d %s, want a committed transaction", a.HTTPStatus, a.Raw)
	}
	e.visibleOnce("tx-paused", s)
}

// visibleOnce waits until the broker has asked about whatever copies it made, and counts what a consumer sees.
func (e *env) visibleOnce(id string, s *service) {
	e.t.Helper()
	await.Success(e.t, 20*time.Second, func() error {
		if got := len(e.visible()[id]); got != 1 {
			return fmt.Errorf("%s is visible %d times", id, got)
		}
		if a, err := s.get(id); err != nil || a.Delivery != "delivered" {
			return fmt.Errorf("delivery of %s: %s (%v)", id, a.Delivery, err)
		}
		return nil
	})
	before := s.metric(`txsvc_checkbacks_total`)
	deadline := time.Now().Add(5 * time.Second)
	for time.Now().Before(deadline) && s.metric(`txsvc_checkbacks_total`) < before+2 {
		time.Sleep(100 * time.Millisecond)
	}
	if got := len(e.visible()[id]); got != 1 {
		e.t.Errorf("%s is visible %d times after further check-backs, want 1", id, got)
	}
}

// TestOrphanedHalfMessage: the process dies after the half message; the id comes again, and the orphan's check-backs
// find another half message in the row.
func TestOrphanedHalfMessage(t *testing.T) {
	t.Parallel()
	e := newImpatientEnv(t)
	dying := e.start("TXSVC_FAILPOINT=half-sent@1").ready()
	if a, err := dying.post("/v1/orders", order("order-1", "k")); err == nil {
		t.Fatalf("got an answer from a dead process: %s", a.Raw)
	}
	dying.awaitDeath()
	s := e.start().ready()
	first := s.mustPost("/v1/orders", order("order-1", "k"), http.StatusCreated)
	await.Success(t, 20*time.Second, func() error {
		if got := s.metric(`txsvc_checkbacks_total{answer="rollback"`); got < 1 {
			return fmt.Errorf("the orphan was not asked about yet")
		}
		return nil
	})
	e.settle(recoverLimit)
	copies := e.visible()["order-1"]
	if len(copies) != 1 || copies[0].UniqKey() != first.MessageID {
		t.Errorf("got %d visible messages, want the one of the second attempt", len(copies))
	}
}

// TestFenceOutlivesTheProcess: an orphan's check-back comes before the id is tried again; the row says so, and a new
// attempt takes its place.
func TestFenceOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	e := newImpatientEnv(t)
	dying := e.start("TXSVC_FAILPOINT=half-sent@1").ready()
	_, _ = dying.post("/v1/orders", order("order-1", "k"))
	dying.awaitDeath()
	s := e.start().ready()
	await.Success(t, 20*time.Second, func() error {
		a, err := s.get("order-1")
		if err != nil || a.State != "rolled_back" || !bytes.Contains([]byte(a.Raw), []byte("abandoned")) {
			return fmt.Errorf("the orphan is not given up yet: %s (%v)", a.Raw, err)
		}
		return nil
	})
	if a := s.mustPost("/v1/orders", order("order-1", "k"), http.StatusCreated); a.State != "committed" || a.Replayed {
		t.Errorf("the new attempt: got %s, replayed %t, want committed, false", a.State, a.Replayed)
	}
	e.visibleOnce("order-1", s)
	e.settle(recoverLimit)
}

// TestCheckbackOfForeignHalfMessage: a half message of another producer in our group is left alone.
func TestCheckbackOfForeignHalfMessage(t *testing.T) {
	t.Parallel()
	e := newImpatientEnv(t)
	s := e.start().ready()
	foreign, err := remoting.New(remoting.Config{Nameservers: e.nameservers, Group: e.group})
	if err != nil {
		t.Fatal(err)
	}
	if err := foreign.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	route, err := foreign.RefreshRoute(t.Context(), e.topic)
	if err != nil {
		t.Fatal(err)
	}
	_, err = foreign.Send(t.Context(), route.Queues[0].Broker, &remoting.SendRequest{Topic: e.topic, Half: true, Body: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	if err := foreign.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.Success(t, 30*time.Second, func() error {
		if got := s.metric(`txsvc_checkbacks_total{answer="foreign"`); got < 2 {
			return fmt.Errorf("asked %v times", got)
		}
		return nil
	})
	if got := e.visible(); len(got) != 0 {
		t.Errorf("got %d visible messages, want none", len(got))
	}
}

// TestTwoServicesInOneGroup: another service with the same kinds and topics, and another database, uses the group by mistake.
// It leaves our half messages alone, and says so; our own service decides them.
func TestTwoServicesInOneGroup(t *testing.T) {
	t.Parallel()
	e := newImpatientEnv(t)
	other := newEnvOn(t, stacktest.NewMigrated(t), e.nameservers)
	other.group, other.topic, other.config = e.group, e.topic, e.config
	ours, theirs := e.start().ready(), other.start().ready()
	const orphans = 5
	dying := e.start(fmt.Sprintf("TXSVC_FAILPOINT=half-sent@%d", orphans)).ready()
	dying.postOrders("orphan-", orphans)
	dying.awaitDeath()
	await.Success(t, time.Minute, func() error {
		decided, foreign := ours.metric(`txsvc_checkbacks_total{answer="rollback"`), theirs.metric(`txsvc_checkbacks_total{answer="foreign"`)
		if decided < orphans || foreign < 1 {
			return fmt.Errorf("%v of our orphans are rolled back, and %v check-backs left unanswered by the other service", decided, foreign)
		}
		return nil
	})
	release := e.hold("paused")
	defer release()
	done := make(chan answer, 1)
	go func() {
		a, err := ours.post("/v1/transactions", slow("tx-paused", "paused"))
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	asked := theirs.metric(`txsvc_checkbacks_total{answer="foreign"`)
	await.Success(t, time.Minute, func() error {
		if got := theirs.metric(`txsvc_checkbacks_total{answer="foreign"`); got == asked {
			return errors.New("the other service was not asked about a local transaction that is running")
		}
		return nil
	})
	theirs.degraded("producer_group", "another service or database")
	release()
	if a := <-done; a.State != "committed" {
		t.Errorf("got %s, want a committed transaction", a.Raw)
	}
	e.visibleOnce("tx-paused", ours)
	for answer, want := range map[string]float64{"rollback": 0, "commit": 0} {
		if got := theirs.metric(`txsvc_checkbacks_total{answer="` + answer + `"`); got != want {
			t.Errorf("the other service answered %s to %v check-backs, want %v", answer, got, want)
		}
	}
	var rows int
	if err := other.db.QueryRow(t.Context(), `SELECT count(*) FROM txsvc.transactions`).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("the other service wrote %d rows (%v), want none", rows, err)
	}
	if got := strings.Count(theirs.log.String(), "half messages of another service"); got != 1 {
		t.Errorf("it was told %d times, want once", got)
	}
	if got := ours.metric(`txsvc_checkbacks_total{answer="foreign"`); got != 0 {
		t.Errorf("our service took %v of its own half messages for foreign ones", got)
	}
}
