package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// TestUnreadQueues: a topic gets more queues to write than to read. Nothing is put where no consumer reads, with a
// transaction or without, and what waited for such a queue goes to another one; readiness says why the service is degraded.
func TestUnreadQueues(t *testing.T) {
	t.Parallel()
	const written, readable, each = 8, 4, 16
	e := newEnv(t)
	if err := e.mq.CreateTopic(t.Context(), e.topic, written); err != nil {
		t.Fatal(err)
	}
	kinds := fmt.Sprintf(`
kinds:
  half: {topic: %[1]s, local: {sql: SELECT @id AS id}}
  boxed: {topic: %[1]s, delivery: outbox, local: {sql: SELECT @id AS id}}
`, e.topic)
	e.config = e.writeConfig(kinds)
	post := func(s *service, kind, prefix string, status int) {
		var wg sync.WaitGroup
		for i := range each {
			wg.Go(func() {
				a, err := s.post("/v1/transactions", fmt.Sprintf(`{"kind": %q, "id": "%[2]s-%[1]s-%[3]d", "shard_key": "k%[3]d", "payload": {}}`, kind, prefix, i))
				switch {
				case status == 0: // the process dies before it answers
				case err != nil || a.HTTPStatus != status || a.Queue.ID >= readable:
					t.Errorf("%s: got %d %s (%v), want %d and a queue that is read", kind, a.HTTPStatus, a.Raw, err, status)
				}
			})
		}
		wg.Wait()
	}
	s := e.start(fmt.Sprintf("TXSVC_FAILPOINT=committed@%d", each)).ready()
	post(s, "half", "waited", 0)
	s.awaitDeath()
	if _, err := e.db.Exec(t.Context(), `INSERT INTO txsvc.transactions (id, kind, state, delivery, shard_key, topic, tag, broker, queue_id,
			selector, reason, uniq_key, commit_log_offset, queue_offset, body, created_at, decided_at, lease_until, outbox)
		SELECT 'waited-boxed-' || n, 'boxed', 'committed', 'pending', 'k' || n, $1, '', 'broker-a', n % $2, '', '', upper(md5(n::text)), -1, -1, '{}', now(), now(), now(), true
		FROM generate_series(1, $3) AS n`, e.topic, written, each); err != nil {
		t.Fatal(err)
	}
	var waited int
	if err := e.db.QueryRow(t.Context(), `SELECT count(*) FROM txsvc.transactions WHERE queue_id >= $1`, readable).Scan(&waited); err != nil || waited < each {
		t.Fatalf("%d messages wait for queues that are not read (%v), want at least %d", waited, err, each)
	}
	share := remoting.QueueData{Broker: devstack.BrokerName(0), Read: readable, Write: written, Perm: remoting.PermRead | remoting.PermWrite}
	if err := e.mq.ChangeTopic(t.Context(), e.topic, share); err != nil {
		t.Fatal(err)
	}
	await.Success(t, pickUp, func() error {
		route, err := e.mq.RefreshRoute(t.Context(), e.topic)
		if err == nil && route.Queues[0].Read != readable {
			err = fmt.Errorf("the name server still tells %d queues to read", route.Queues[0].Read)
		}
		return err
	})

	// Its selector keeps keys where they are, and so has to see the topic as it is now first.
	e.config = e.writeConfig(kinds + fmt.Sprintf("  lined: {topic: %s, ordered: true, local: {sql: SELECT @id AS id}}\n", e.topic))
	s = e.start().ready()
	s.assertDegraded(t, "4 queues; broker broker-a has 8 queues to write and 4 to read, so its queues 4 to 7 are not used: no consumer reads them")
	for _, q := range s.topic(t, e.topic).Queues {
		if !q.Writable || q.Readable != (q.ID < readable) {
			t.Errorf("got %+v", q)
		}
	}
	if p := s.preview(e.topic, "k1"); p.Queues != readable || p.Queue.ID >= readable {
		t.Errorf("preview: got %+v, want one of %d queues", p, readable)
	}
	for _, kind := range []string{"half", "boxed", "lined"} {
		post(s, kind, "new", http.StatusCreated)
	}
	for i := range each {
		if r := e.mustSend(s, fmt.Sprint("k", i), `"body": 1`, http.StatusCreated); r.Queue.ID >= readable {
			t.Errorf("a message without a transaction: got %s", r.Raw)
		}
	}
	await.Success(t, recoverLimit, func() error {
		var pending int
		err := e.db.QueryRow(context.Background(), `SELECT count(*) FROM txsvc.current WHERE delivery <> 'delivered' OR queue_id >= $1`, readable).Scan(&pending)
		if err == nil && pending > 0 {
			err = fmt.Errorf("%d messages are not delivered to a queue that is read", pending)
		}
		return err
	})
	await.Success(t, pickUp, func() error { // a message is in its queue a moment after the broker's answer
		found := e.visible()
		if got, want := len(found[""]), each; got != want {
			return fmt.Errorf("%d messages without a transaction are visible, want %d", got, want)
		}
		delete(found, "")
		if got, want := len(found), 5*each; got != want {
			return fmt.Errorf("%d transactions are visible, want %d", got, want)
		}
		for id, copies := range found {
			if len(copies) != 1 {
				t.Fatalf("%s is visible %d times", id, len(copies))
			}
		}
		return nil
	})
	for id := readable; id < written; id++ {
		if end, err := e.mq.MaxOffset(t.Context(), share.Broker, e.topic, id); err != nil || end != 0 {
			t.Errorf("queue %d, which no consumer reads, has %d messages (%v)", id, end, err)
		}
	}
	if got := strings.Count(s.log.String(), "the queue of a message that waits was removed, or is not read any more"); got != waited {
		t.Errorf("%d messages are told to have got another queue, want %d", got, waited)
	}
}
