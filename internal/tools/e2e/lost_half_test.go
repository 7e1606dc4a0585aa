package e2e

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// dieCommitted leaves count committed transactions behind whose half messages nobody has ended.
func (e *env) dieCommitted(count int) {
	e.t.Helper()
	s := e.start(fmt.Sprintf("TXSVC_FAILPOINT=committed@%d", count)).ready()
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() { _, _ = s.post("/v1/orders", order(fmt.Sprint("order-", i), fmt.Sprint(i))) })
	}
	wg.Wait()
	s.awaitDeath()
	if got := len(e.committed()); got != count {
		e.t.Fatalf("%d transactions are committed, want %d", got, count)
	}
}

// TestHalfMessageGone: the broker no longer has the half messages; the stored bodies are sent to the same queues.
func TestHalfMessageGone(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const count = 10
	e.dieCommitted(count)
	// As after the loss of the broker's store: what the rows name is not there.
	if _, err := e.db.Exec(context.Background(), `UPDATE txsvc.transactions SET commit_log_offset = commit_log_offset + 1000000000000`); err != nil {
		t.Fatal(err)
	}
	s := e.start().ready()
	if got := e.settle(recoverLimit); got != count {
		t.Errorf("%d transactions are committed, want %d", got, count)
	}
	if got := strings.Count(s.log.String(), "sending the stored body"); got != count {
		t.Errorf("%d stored bodies were sent, want %d", got, count)
	}
	for id, copies := range e.visible() {
		var queueID int32
		var uniqKey, body string
		err := e.db.QueryRow(context.Background(), `SELECT t.queue_id, t.uniq_key, o.customer FROM txsvc.transactions t JOIN orders o USING (id) WHERE t.id = $1`, id).
			Scan(&queueID, &uniqKey, &body)
		if err != nil {
			t.Fatal(err)
		}
		if m := copies[0]; m.QueueID != queueID || m.UniqKey() != uniqKey || m.Properties.Get("SHARDING_KEY") != body || m.Properties.Get("TAGS") != "created" {
			t.Errorf("%s: queue %d, properties %v; want queue %d and the properties of the half message", id, m.QueueID, m.Properties, queueID)
		}
	}
}

// TestHalfMessageReplaced: another half message of the service is where the row's should be, as after the loss of the
// broker's store. It must not be ended in the other's place.
func TestHalfMessageReplaced(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const count = 10
	e.dieCommitted(count)
	if _, err := e.db.Exec(context.Background(), `WITH pairs AS (
			SELECT id, commit_log_offset c, queue_offset q, lead(id, 1, (SELECT min(id) FROM txsvc.transactions)) OVER (ORDER BY id) AS next
			FROM txsvc.transactions)
		UPDATE txsvc.transactions t SET commit_log_offset = p.c, queue_offset = p.q FROM pairs p WHERE t.id = p.next`); err != nil {
		t.Fatal(err)
	}
	e.start().ready()
	if got := e.settle(recoverLimit); got != count {
		t.Errorf("%d transactions are committed, want %d", got, count)
	}
}

// TestHalfMessageDiscarded: nobody is there to answer until the broker has given the half messages up.
func TestHalfMessageDiscarded(t *testing.T) {
	t.Parallel()
	once := maps.Clone(impatient)
	once["transactionCheckMax"] = "1"
	e, _ := newPrivateEnv(t, devstack.Options{BrokerConfig: once})
	const count = 10
	e.dieCommitted(count)
	await.Success(t, 60*time.Second, func() error { // where the broker puts what it gives up
		given, err := e.mq.MaxOffset(context.Background(), devstack.BrokerName(0), "TRANS_CHECK_MAX_TIME_TOPIC", 0)
		if err != nil || given < count {
			return fmt.Errorf("%d half messages are given up (%v)", given, err)
		}
		return nil
	})
	e.start().ready()
	if got := e.settle(recoverLimit); got != count {
		t.Errorf("%d transactions are committed, want %d", got, count)
	}
}
