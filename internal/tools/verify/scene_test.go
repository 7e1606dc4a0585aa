package verify

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// scene is a made-up run with requests, answers, rows and messages, and everything is right. Tests break one thing, and
// check that this is found and nothing else.
type scene struct {
	t       *testing.T
	plan    *plan
	journal *journal
	rows    []*Row
	msgs    []*Message
	changes []string // ids in the kind's table; nil: it has none
}

const (
	sceneSize = 40
	victim    = sceneSize - 1 // the transaction that tests break something about; the last, so that its order is right
	bystander = 30
)

func sceneHeader() *header {
	return &header{
		Run: "test", Seed: 7, Keys: 3, Distribution: Uniform, Count: sceneSize,
		Kinds: []Kind{{Name: "k.one", Path: "/v1/one", Topic: "topic", Tag: "made", Weight: 1, Payload: `{"n": {{n}}, "id": "{{id}}"}`}},
	}
}

// newScene posts all transactions plainly, and each is answered before the next is sent.
func newScene(t *testing.T, change func(*header)) *scene {
	t.Helper()
	h := sceneHeader()
	if change != nil {
		change(h)
	}
	p, err := newPlan(h)
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{t: t, plan: p, journal: newJournal()}
	for n := range uint32(sceneSize) {
		row := s.rowOf(n)
		s.rows = append(s.rows, row)
		s.msgs = append(s.msgs, s.messageOf(row, int64(n)))
		if n != victim { // tests add it themselves
			s.say(n, s.committed(n))
		}
	}
	return s
}

func (s *scene) rowOf(n uint32) *Row {
	tx := s.plan.transaction(n)
	decided := time.UnixMicro(int64(1_000_000 + n))
	line := int64(n + 1)
	r := &Row{
		ID: s.plan.id(n), Kind: s.plan.kinds[tx.kind].Name, State: "committed", Delivery: "delivered", ShardKey: s.plan.shardKey(tx.key),
		Topic: s.plan.kinds[tx.kind].Topic, Tag: s.plan.tag(tx), Broker: "broker-a", QueueID: int(tx.key), Selector: "hash", Reason: "r",
		MessageID: fmt.Sprintf("%032X", n+1), Result: []byte(`{"a": 1, "b": [2]}`), CreatedAt: time.UnixMicro(int64(n)), DecidedAt: &decided, Line: &line,
	}
	if key := s.plan.key(tx); key != "" {
		r.Keys = []string{key}
	}
	if property := s.plan.property(tx); property != "" {
		r.Properties = map[string]string{propertyName: property}
	}
	return r
}

func (s *scene) messageOf(r *Row, offset int64) *Message {
	n, _ := s.plan.number(r.ID)
	tx := s.plan.transaction(n)
	keys := r.ID
	if len(r.Keys) > 0 {
		keys += " " + r.Keys[0]
	}
	return &Message{
		Topic: r.Topic, Queue: r.queue(), Offset: offset, ID: r.ID, Kind: r.Kind, ShardKey: r.ShardKey, Tag: r.Tag, Keys: keys,
		MessageID: r.MessageID, Property: r.Properties[propertyName], Body: s.plan.appendPayload(nil, tx),
	}
}

// committed is the true answer about a transaction.
func (s *scene) committed(n uint32) Answer {
	r := s.rows[n]
	return Answer{
		Class: Committed, Status: 201, Delivered: true, Queue: r.queue(), MessageID: messageID(r.MessageID), Content: r.content(),
	}
}

func (s *scene) replayed(n uint32) Answer {
	a := s.committed(n)
	a.Replayed = true
	return a
}

// say sends a request and answers it.
func (s *scene) say(n uint32, a Answer) {
	s.journal.answered(n, &a, s.journal.sent(n, a.Purpose, 0))
}

// drop takes row and message away.
func (s *scene) drop(n uint32, row, message bool) {
	if row {
		s.rows[n] = nil
	}
	if message {
		s.msgs[n] = nil
	}
}

// allChanged has each transaction's business change.
func (s *scene) allChanged() {
	s.changes = []string{"of another", "v-test-strange"}
	for _, r := range s.rows {
		s.changes = append(s.changes, r.ID)
	}
}

// reject makes the row one of a rejected transaction, without a message.
func (s *scene) reject(n uint32) {
	s.rows[n].State, s.rows[n].Delivery, s.rows[n].Rejected, s.rows[n].RejectHash, s.rows[n].Line = "rolled_back", "none", true, 77, nil
	s.msgs[n] = nil
}

func rejected() Answer { return Answer{Class: Rejected, Status: 422, Content: 77} }

// judge returns what is found, by class.
func (s *scene) judge() (map[string]uint64, *checker) {
	c := newChecker(s.plan, s.journal)
	for _, r := range s.rows {
		if r != nil {
			c.row(r)
		}
	}
	for _, m := range s.msgs {
		if m != nil {
			c.message(m)
		}
	}
	if s.changes != nil {
		c.kinds[0].table = "things"
	}
	for _, id := range s.changes {
		c.change(id)
	}
	c.judge()
	return c.found.counts, c
}

// want checks that exactly these violations are found.
func (s *scene) want(want map[string]uint64) *checker {
	s.t.Helper()
	got, c := s.judge()
	if want == nil {
		want = map[string]uint64{}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("violations (-want +got):\n%s%v", diff, c.found.list())
	}
	return c
}
