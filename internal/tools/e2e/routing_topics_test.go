package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// topicsChange has the changes of single topics beside each other: most of their time is waiting until they are noticed.
func (r *routes) topicsChange(t *testing.T) {
	for name, change := range map[string]func(t *testing.T){
		"queues are added":                            r.queuesAdded,
		"a broker is made read-only":                  r.readOnly,
		"queues are removed in two steps, under load": r.queuesRemoved,
		"a topic is deleted and created again":        r.topicDeleted,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change(t)
		})
	}
}

// topicState is an answer of GET /v1/topics/{topic}/queues.
type topicState struct {
	Queues []struct {
		Broker                       string
		ID                           int
		Writable, Readable, Accepted bool
	}
	Accepted *struct {
		Version int64
		Pause   int64 `json:"pause_ms"`
	}
}

func (s *service) topic(t *testing.T, name string) (state topicState) {
	t.Helper()
	response, err := http.Get(s.url + "/v1/topics/" + name + "/queues")
	if err != nil {
		t.Fatal(err)
	}
	a, err := read(response)
	if err == nil {
		err = json.Unmarshal([]byte(a.Raw), &state)
	}
	if err != nil || a.HTTPStatus != http.StatusOK {
		t.Fatalf("queues of %s: %d %s (%v)", name, a.HTTPStatus, a.Raw, err)
	}
	return state
}

// queuesAdded: new queues are used at once by a selector that remaps, and by one that refuses not before they are
// accepted.
func (r *routes) queuesAdded(t *testing.T) {
	all := keys(100)
	before := r.previews(t, r.replicas[0], "keepgrow", all)
	start := time.Now()
	r.create(t, "grow", queues+2)
	r.create(t, "keepgrow", queues+2)
	since(t, start, "queues added", func() error {
		for _, s := range r.replicas {
			if n := s.preview("grow", "k").Queues; n != 2*(queues+2) {
				return fmt.Errorf("%d queues to choose from", n)
			}
			if n := len(s.topic(t, "keepgrow").Queues); n != 2*(queues+2) {
				return fmt.Errorf("%d queues of keepgrow are known", n)
			}
		}
		return nil
	})
	fresh := 0
	for key, a := range r.sendAll("grow", all) {
		if a.HTTPStatus != http.StatusCreated {
			t.Errorf("%s: got %d %s", key, a.HTTPStatus, a.Raw)
		}
		if a.Queue.ID >= queues {
			fresh++
		}
	}
	if fresh == 0 {
		t.Error("no key uses a new queue")
	}
	for key, a := range r.sendAll("keepgrow", all) {
		if a.HTTPStatus != http.StatusCreated || a.Queue != before[key] {
			t.Errorf("%s: got %d %s, want queue %v", key, a.HTTPStatus, a.Raw, before[key])
		}
	}
	for _, q := range r.replicas[0].topic(t, "keepgrow").Queues {
		if !q.Writable || !q.Readable || q.Accepted != (q.ID < queues) {
			t.Errorf("got %+v", q)
		}
	}
	r.accepted(t, before)
	r.settled(t, "grow", "keepgrow")
}

// readOnly: a broker whose queues of the topic must not be written is left out; what is in them stays readable, also what
// was on its way.
func (r *routes) readOnly(t *testing.T) {
	all := keys(100)
	start := time.Now()
	r.change(t, "readonly", remoting.QueueData{Broker: "broker-b", Read: queues, Write: queues, Perm: remoting.PermRead})
	since(t, start, "read-only", func() error {
		for key, a := range r.sendAll("readonly", all) {
			if a.HTTPStatus != http.StatusCreated || a.Queue.Broker != "broker-a" {
				return fmt.Errorf("%s: got %d %s", key, a.HTTPStatus, a.Raw)
			}
		}
		return nil
	})
	for _, q := range r.replicas[0].topic(t, "readonly").Queues {
		if q.Writable != (q.Broker == "broker-a") || !q.Readable {
			t.Errorf("got %+v", q)
		}
	}
	r.settled(t, "readonly")
}

func (r *routes) change(t *testing.T, topic string, share remoting.QueueData) {
	t.Helper()
	if err := r.mq.ChangeTopic(t.Context(), topic, share); err != nil {
		t.Fatal(err)
	}
}

// queuesRemoved: an operator removes queues as RocketMQ wants it, first for writing, then, when they are read, for
// reading. Nothing is lost under load, and no request fails.
func (r *routes) queuesRemoved(t *testing.T) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	sent := 0
	go func() {
		defer close(stopped)
		for {
			for key, a := range r.sendAll("shrink", keys(50)) {
				sent++
				if a.HTTPStatus != http.StatusCreated {
					t.Errorf("%s: got %d %s", key, a.HTTPStatus, a.Raw)
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	const left = 1
	both := remoting.PermRead | remoting.PermWrite
	start := time.Now()
	for i := range 2 {
		r.change(t, "shrink", remoting.QueueData{Broker: devstack.BrokerName(i), Read: queues, Write: left, Perm: both})
	}
	since(t, start, "fewer queues to write", func() error {
		for _, s := range r.replicas {
			if n := s.preview("shrink", "k").Queues; n != 2*left {
				return fmt.Errorf("%d queues to choose from", n)
			}
		}
		return nil
	})
	// What was routed before the change is read now; then nothing is in the queues that go.
	await.Success(t, recoverLimit, func() error {
		var pending int
		err := r.db.QueryRow(context.Background(), `SELECT count(*) FROM txsvc.current
			WHERE delivery = 'pending' AND topic = 'shrink' AND queue_id >= $1`, left).Scan(&pending)
		if err == nil && pending > 0 {
			err = fmt.Errorf("%d messages are pending in the queues that go", pending)
		}
		return err
	})
	found := make(map[string][]queue)
	await.Success(t, 10*time.Second, func() error { clear(found); return r.read("shrink", found) })
	start = time.Now()
	for i := range 2 {
		r.change(t, "shrink", remoting.QueueData{Broker: devstack.BrokerName(i), Read: left, Write: left, Perm: both})
	}
	since(t, start, "fewer queues to read", func() error {
		for _, s := range r.replicas {
			if n := len(s.topic(t, "shrink").Queues); n != 2*left {
				return fmt.Errorf("%d queues are known", n)
			}
		}
		return nil
	})
	close(stop)
	<-stopped
	for id, where := range found {
		if len(where) != 1 {
			t.Errorf("%s is visible in %v", id, where)
		}
	}
	r.saw(found)
	t.Logf("%d transactions were sent while the queues were removed", sent)
	r.settled(t, "shrink")
}

// topicDeleted: a topic that is deleted is noticed, without traffic at one replica and with it at the other, and used
// again when it is there again.
func (r *routes) topicDeleted(t *testing.T) {
	names := []string{"gone", "keepgone"}
	for _, topic := range names {
		for key, a := range r.sendAll(topic, keys(20)) {
			if a.HTTPStatus != http.StatusCreated {
				t.Errorf("%s: got %d %s", key, a.HTTPStatus, a.Raw)
			}
		}
	}
	r.settled(t, names...)
	found := make(map[string][]queue)
	for _, topic := range names {
		if err := r.read(topic, found); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	for _, topic := range names {
		if err := r.mq.DeleteTopic(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
	}
	r.saw(found) // and deleted with the topic
	for topic, why := range map[string]string{"gone": "topic gone does not exist", "keepgone": "cannot be used now"} {
		for i := range 5 { // from the first request on: the broker refuses it, and then it is known
			if a := r.replicas[0].send(topic, fmt.Sprint(i)); a.HTTPStatus != http.StatusServiceUnavailable || !strings.Contains(a.Detail, why) {
				t.Errorf("%s: got %d %s, want 503 with %q", topic, a.HTTPStatus, a.Raw, why)
			}
		}
	}
	since(t, start, "topic deleted, without traffic", func() error {
		response, err := http.Get(r.replicas[1].url + "/readyz")
		if err != nil {
			return err
		}
		a, err := read(response)
		if a.HTTPStatus != http.StatusServiceUnavailable || !strings.Contains(a.Raw, "topic gone does not exist") ||
			!strings.Contains(a.Raw, "topic keepgone does not exist") {
			return fmt.Errorf("/readyz: %d %s (%v)", a.HTTPStatus, a.Raw, err)
		}
		return nil
	})
	start = time.Now()
	for _, topic := range names {
		r.create(t, topic, queues)
	}
	since(t, start, "topic created again", func() error {
		for _, topic := range names {
			for key, a := range r.sendAll(topic, keys(20)) {
				if a.HTTPStatus != http.StatusCreated {
					return fmt.Errorf("%s: got %d %s", key, a.HTTPStatus, a.Raw)
				}
			}
		}
		return nil
	})
	r.settled(t, names...)
}
