package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// pendingRemoved: all replicas are dead while the queues of committed, undelivered messages are removed. Each message is
// delivered once, to a queue that is there; those of a key with ordered: true in the order of their commits.
func (r *routes) pendingRemoved(t *testing.T) {
	for _, s := range r.replicas {
		s.stop()
	}
	const each = 20 // messages of each topic: two replicas send one per key
	topics := []string{"half", "lined", "boxed"}
	var dying []*service
	var wg sync.WaitGroup
	for i := range 2 {
		s := r.start(fmt.Sprintf("TXSVC_FAILPOINT=committed@%d", each/2*len(topics))).ready()
		dying = append(dying, s)
		for _, topic := range topics {
			for _, key := range keys(each / 2) {
				body := fmt.Sprintf(`{"kind": %q, "id": "%[1]s-%[2]s-%[3]d", "shard_key": %[2]q, "payload": {}}`, topic, key, i)
				wg.Go(func() { // until the process dies; a machine that is too busy says 503 first
					for {
						if _, err := s.post("/v1/transactions", body); err != nil {
							return
						}
					}
				})
			}
		}
	}
	wg.Wait()
	for _, s := range dying {
		s.awaitDeath()
	}
	found := make(map[string][]queue)
	for _, topic := range topics { // the relay has sent some that have no half message; the marks of a few are lost
		if err := r.read(topic, found); err != nil {
			t.Fatal(err)
		}
	}
	r.saw(found)
	count := func(where string) (n int) {
		t.Helper()
		err := r.db.QueryRow(context.Background(), `SELECT count(*) FROM txsvc.current
			WHERE topic = ANY ($1) AND NOT id = ANY ($2) AND `+where, topics, slices.AppendSeq([]string{}, maps.Keys(found))).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const left = 1
	pending, removed := count(`delivery = 'pending'`), count(fmt.Sprintf(`delivery = 'pending' AND queue_id >= %d`, left))
	if pending < 2*each || removed < pending/2 {
		t.Fatalf("%d messages are pending, %d of them in queues that go; want %d, and most of them", pending, removed, each*len(topics))
	}
	t.Logf("%d messages are pending, %d of them in queues that go", pending, removed)
	for _, topic := range topics {
		for i := range 2 {
			r.change(t, topic, remoting.QueueData{Broker: devstack.BrokerName(i), Read: left, Write: left, Perm: remoting.PermRead | remoting.PermWrite})
		}
	}
	s := r.start().ready()
	r.replicas = []*service{s}
	r.settled(t, topics...)
	if n := count(fmt.Sprintf(`queue_id >= %d`, left)); n != 0 {
		t.Errorf("%d rows still name a queue that was removed", n)
	}
	if got := strings.Count(s.log.String(), "the queue of a message that waits was removed"); got != removed {
		t.Errorf("%d messages are told to have got another queue, want %d", got, removed)
	}
	got := 0.0
	for _, path := range []string{"resolver", "relay", "checkback"} {
		got += s.metric(`txsvc_deliveries_total{path="` + path + `",result="rerouted"}`)
	}
	if got != float64(removed) {
		t.Errorf("%v are counted, want %d", got, removed)
	}
	if got := s.metric("txsvc_duplicates_suspected_total"); got != 0 {
		t.Errorf("%v duplicates are suspected, want none", got)
	}
	r.assertLines(t, "lined")
}

// assertLines: messages of a key are in the order of their places.
func (r *routes) assertLines(t *testing.T, topic string) {
	t.Helper()
	one := *r.env
	one.topic = topic
	found, err := one.readTopic()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := r.db.Query(context.Background(), `SELECT id, shard_key FROM txsvc.transactions WHERE topic = $1 ORDER BY line`, topic)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	last := make(map[string]int64)
	for rows.Next() {
		var id, key string
		if err := rows.Scan(&id, &key); err != nil {
			t.Fatal(err)
		}
		offset := found[id][0].QueueOffset
		if before, ok := last[key]; ok && offset < before {
			t.Errorf("%s of key %s is at %d, and the one before it at %d", id, key, offset, before)
		}
		last[key] = offset
	}
	if err := rows.Err(); err != nil || len(last) == 0 {
		t.Errorf("%d keys (%v)", len(last), err)
	}
}
