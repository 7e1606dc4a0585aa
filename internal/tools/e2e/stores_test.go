package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// degraded waits until /readyz says 200 and has a check of that name that is not OK, with the text in its detail.
func (s *service) degraded(name, detail string) {
	s.t.Helper()
	await.Success(s.t, 60*time.Second, func() error {
		response, err := http.Get(s.url + "/readyz")
		if err != nil {
			return err
		}
		a, _ := read(response)
		_, check, found := strings.Cut(a.Raw, `"name":"`+name+`","ok":false`)
		check, _, _ = strings.Cut(check, "}")
		if response.StatusCode != http.StatusOK || !found || !strings.Contains(check, detail) {
			return fmt.Errorf("/readyz: %d %s, want %s degraded with %q", response.StatusCode, a.Raw, name, detail)
		}
		return nil
	})
}

// rocksDBHalves makes a broker keep half messages in RocksDB, in a topic of their own.
var rocksDBHalves = map[string]string{"transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "false"}

// TestHalfMessagesInRocksDB: what a killed process left is delivered once: half messages that nobody has ended, messages that
// are visible although no row says so, and orphans, about which this store asks without making copies.
func TestHalfMessagesInRocksDB(t *testing.T) {
	t.Parallel()
	config := stacktest.Patient(impatient)
	maps.Copy(config, rocksDBHalves)
	e, stack := newPrivateEnv(t, devstack.Options{BrokerConfig: config})
	for _, point := range []string{"committed", "end-answered", "half-sent"} {
		dying := e.start("TXSVC_FAILPOINT=" + point + "@10").ready()
		dying.postOrders(point+"-", 10)
		dying.awaitDeath()
	}
	s := e.start().ready()
	if got := s.postOrders("whole-", 10); got != 10 {
		t.Errorf("%d of 10 answers say delivered", got)
	}
	if got := e.settle(time.Minute); got < 30 {
		t.Errorf("%d transactions are committed, want 30 at least", got)
	}
	await.Success(t, 30*time.Second, func() error {
		if got := s.metric(`txsvc_checkbacks_total{answer="rollback"`); got < 10 {
			return fmt.Errorf("%v orphans are answered rollback, want 10", got)
		}
		return nil
	})
	// What was delivered is asked about again after the broker has lost what it had not noted of that.
	stack.Broker(0).Kill()
	if err := stack.Broker(0).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.ready()
	await.Success(t, 30*time.Second, func() error {
		a, err := s.post("/v1/orders", order("last", "last"))
		if err != nil || a.HTTPStatus != http.StatusCreated {
			return fmt.Errorf("%d %s (%v)", a.HTTPStatus, a.Raw, err)
		}
		return nil
	})
	e.visibleOnce("last", s)
	e.settle(time.Minute)
}

// TestMessageIndexIsOff: a broker whose index knows nothing. Its queues are read, nothing is doubled, and that is told, until
// it has an index.
func TestMessageIndexIsOff(t *testing.T) {
	t.Parallel()
	e, stack := newPrivateEnv(t, devstack.Options{BrokerConfig: stacktest.Patient(map[string]string{"messageIndexEnable": "false"})})
	for _, point := range []string{"committed", "end-answered"} {
		dying := e.start("TXSVC_FAILPOINT=" + point + "@10").ready()
		dying.postOrders(point+"-", 10)
		dying.awaitDeath()
	}
	s := e.start().ready()
	if got := e.settle(time.Minute); got < 20 {
		t.Errorf("%d transactions are committed, want 20 at least", got)
	}
	s.degraded("delivery:broker-a", "messageIndexEnable")
	if got := strings.Count(s.log.String(), "index does not know what is in its queues"); got != 1 {
		t.Errorf("it was told %d times, want once", got)
	}
	stack.Broker(0).Kill()
	stack.ReconfigureBroker(0, map[string]string{"messageIndexEnable": "true"}, nil)
	if err := stack.Broker(0).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.Success(t, 2*time.Minute, func() error {
		response, err := http.Get(s.url + "/readyz")
		if err != nil {
			return err
		}
		if a, _ := read(response); !strings.Contains(a.Raw, `"status":"ready"`) {
			return fmt.Errorf("/readyz: %s", a.Raw)
		}
		return nil
	})
	e.compare()
}
