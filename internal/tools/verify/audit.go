package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/txsvc/txsvc/internal/pause"
)

// Audited is one sort of transaction that an [Audit] checks.
type Audited struct {
	Kind    string // of the service; empty: another program, which has no rows of transactions
	Topic   string // of this kind alone
	Table   string // of the business change, with the transaction's id in the column id; of this kind alone
	Ordered bool
}

// Audit checks a load that something else made, such as a benchmark. Unlike a [Run], it does not know what was asked, and the
// service chose the ids. It compares answers, rows, the tables of the business change, and messages. It is not safe for
// concurrent use.
type Audit struct {
	sorts  []Audited
	db     *database
	topics *topicReader
	settle time.Duration
	kinds  map[string]*auditedKind // by topic
	byKind map[string]*auditedKind
}

// auditedKind has what was seen of one sort of transaction.
type auditedKind struct {
	Audited
	seen map[string]*sighting // by id
	last map[string]int64     // line of the last message, by shard key
}

// sighting has what was seen of one transaction.
type sighting struct {
	answered, delivered, row, pending, change, inverted bool

	copies                                    int
	line                                      int64 // place among those of its shard key; 0: none
	answerQueue, rowQueue, messageQueue       string
	answerMessage, rowMessage, visibleMessage [16]byte
}

// Findings of an audit, by class; the classes are those of docs/verify.md.
type Findings struct {
	Committed int            // transactions
	Visible   int            // messages
	Answered  int            // answers 201
	Classes   map[string]int // empty: everything was right
	Examples  []string       // of the first findings
}

// StartAudit notes where the topics end. The load comes after it. Ids of rows have to begin with the time, as those do that the
// service chooses, or the table has to be empty.
func StartAudit(ctx context.Context, stack Stack, settle time.Duration, sorts ...Audited) (*Audit, error) {
	a := &Audit{sorts: sorts, settle: settle, kinds: map[string]*auditedKind{}, byKind: map[string]*auditedKind{}}
	var topics []string
	for _, s := range sorts {
		k := &auditedKind{Audited: s, seen: map[string]*sighting{}, last: map[string]int64{}}
		a.kinds[s.Topic], topics = k, append(topics, s.Topic)
		if s.Kind != "" {
			a.byKind[s.Kind] = k
		}
	}
	var err error
	if a.db, err = openDatabase(ctx, stack.DatabaseURL, "-", settle); err != nil {
		return nil, err
	}
	a.db.first, a.db.last = idFrom(time.Now().Add(-time.Second)), "~"
	if a.topics, err = openTopics(ctx, stack.Broker, topics, settle); err == nil {
		var starts []start
		starts, err = a.topics.starts(ctx)
		a.topics.begin(starts)
	}
	if err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// idFrom returns a lower bound of UUIDs of version 7 that are made from a time on.
func idFrom(at time.Time) string {
	digits := fmt.Sprintf("%012x", at.UnixMilli())
	return digits[:8] + "-" + digits[8:]
}

// Close ends all connections.
func (a *Audit) Close() {
	a.db.close()
	if a.topics != nil {
		a.topics.close()
	}
}

func (k *auditedKind) at(id string) *sighting {
	if k.seen[id] == nil {
		k.seen[id] = &sighting{}
	}
	return k.seen[id]
}

// Answered takes an answer 201 to a request of any of the kinds.
func (a *Audit) Answered(text []byte) error {
	var b body
	if err := json.Unmarshal(text, &b); err != nil {
		return fmt.Errorf("an answer is not as it should be: %w: %.300s", err, text)
	}
	answer := readAnswer(b.ID, Post, 201, text)
	if answer.Class != Committed || b.Kind == nil || a.byKind[*b.Kind] == nil {
		return fmt.Errorf("an answer does not say that a transaction has committed: %.300s", text)
	}
	s := a.byKind[*b.Kind].at(b.ID)
	s.answered, s.delivered, s.answerQueue, s.answerMessage = true, answer.Delivered, answer.Queue, answer.MessageID
	return nil
}

// Check waits until nothing is pending, and for linger more, because copies may come late. Then it reads everything and compares.
// The findings are by kind, or topic where there is no kind. An error means that not everything could be read.
func (a *Audit) Check(ctx context.Context, linger time.Duration) (map[string]*Findings, error) {
	if err := a.awaitNothingPending(ctx); err != nil {
		return nil, err
	}
	pause.For(ctx, linger)
	if err := a.read(ctx); err != nil {
		return nil, err
	}
	found := make(map[string]*Findings)
	for _, s := range a.sorts {
		name := s.Kind
		if name == "" {
			name = s.Topic
		}
		found[name] = a.kinds[s.Topic].judge()
	}
	return found, ctx.Err()
}

func (a *Audit) awaitNothingPending(ctx context.Context) error {
	return retry(ctx, a.settle, func(ctx context.Context) error {
		n, err := a.db.pending(ctx)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d rows are pending", n)
		}
		return err
	})
}

func (a *Audit) read(ctx context.Context) error {
	err := a.db.scan(ctx, func(r *Row) {
		if k := a.byKind[r.Kind]; k != nil && r.State == "committed" {
			s := k.at(r.ID)
			s.row, s.pending, s.rowQueue, s.rowMessage = true, r.Delivery == "pending", r.queue(), messageID(r.MessageID)
			if r.Line != nil {
				s.line = *r.Line
			}
		}
	})
	if err != nil {
		return err
	}
	for _, k := range a.kinds {
		if err := a.db.changes(ctx, k.Table, nil, func(id string) { k.at(id).change = true }); err != nil {
			return err
		}
	}
	return a.topics.read(ctx, func(m *Message) {
		a.kinds[m.Topic].message(m)
	})
}

// message takes a message. Those of a queue come in their order.
func (k *auditedKind) message(m *Message) {
	s := k.at(m.transactionID())
	s.copies++
	s.messageQueue, s.visibleMessage = m.Queue, messageID(m.MessageID)
	if k.Ordered && s.copies == 1 {
		s.inverted = s.line <= k.last[m.ShardKey]
		k.last[m.ShardKey] = s.line
	}
}

// judge compares what was seen.
func (k *auditedKind) judge() *Findings {
	f := &Findings{Classes: map[string]int{}}
	find := func(id, class string) {
		f.Classes[class]++
		if len(f.Examples) < 10 {
			f.Examples = append(f.Examples, id+": "+class)
		}
	}
	ids := make([]string, 0, len(k.seen))
	for id := range k.seen {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, strings.Compare)
	for _, id := range ids {
		s := k.seen[id]
		k.count(f, s)
		for _, class := range k.wrong(s) {
			find(id, class)
		}
	}
	return f
}

func (k *auditedKind) count(f *Findings, s *sighting) {
	if s.row || k.Kind == "" && s.change {
		f.Committed++
	}
	if s.answered {
		f.Answered++
	}
	f.Visible += s.copies
}

// wrong returns the classes of what is wrong with a transaction.
func (k *auditedKind) wrong(s *sighting) (classes []string) {
	committed := s.row || k.Kind == "" && s.change
	for _, c := range []struct {
		is    bool
		class string
	}{
		{committed && s.copies == 0, Lost},
		{s.copies > 1, Doubled},
		{!committed && s.copies > 0, Ghost},
		{k.Kind != "" && s.row != s.change, HalfDone},
		{s.row && s.copies > 0 && s.rowQueue != s.messageQueue, WrongQueue},
		{s.row && s.copies > 0 && s.rowMessage != s.visibleMessage, WrongContent},
		{s.inverted, Inversion},
		{s.answered && !s.row, "committed_without_row"},
		{s.answered && s.row && (s.answerQueue != s.rowQueue || s.answerMessage != s.rowMessage), "answer_differs_from_row"},
		{s.delivered && s.copies == 0, "delivered_not_visible"},
		{s.pending, "pending"},
	} {
		if c.is {
			classes = append(classes, c.class)
		}
	}
	return classes
}
