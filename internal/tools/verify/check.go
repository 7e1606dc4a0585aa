package verify

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// checker compares answers, rows and visible messages. It takes all rows and messages, and then judges. It is not safe
// for concurrent use.
type checker struct {
	plan    *plan
	journal *journal
	found   *findings
	// wrong says, for the first transactions, how their content is wrong.
	wrong map[uint32]string
	// rows has the content of the first rows that differ from an answer.
	rows map[uint32]*saying
	// Of kinds whose body is the result: hashes of the results in rows and of the bodies in messages.
	results, bodies map[uint32]uint64

	maybe    bool // not all queues could be read, so a message that was not seen may be visible
	rowsOnly bool // not all rows could be read, so a missing row may exist
	unproved struct{ lost, ghosts, answers uint64 }
	kinds    []kindCount
}

// kindCount has the counts of one kind.
type kindCount struct {
	posted, committed, rejected, visible uint64
	ordered                              bool
	violations                           uint64
	table                                string // whose rows were read; empty: none
	inversions, splitKeys, noLine        uint64
}

func newChecker(p *plan, j *journal) *checker {
	c := &checker{
		plan: p, journal: j, found: newFindings(), wrong: make(map[uint32]string), rows: make(map[uint32]*saying),
		results: make(map[uint32]uint64), bodies: make(map[uint32]uint64), kinds: make([]kindCount, len(p.kinds)),
	}
	for i := range p.kinds {
		c.kinds[i].ordered = p.kinds[i].Ordered
	}
	return c
}

// anyRow has all flags that a row can set.
const anyRow = rowSeen | rowCommitted | rowRejected | rowAbandoned | rowPending | rowUnknown

// row takes a row. It may take the same row again, because rows change.
func (c *checker) row(r *Row) {
	n, ok := c.plan.number(r.ID)
	if !ok {
		c.found.add(Unsent, 1, maxCount, r.ID, "a row has an id that looks like this run's, and that no load makes")
		return
	}
	f := c.journal.facts.at(n)
	f.flags = f.flags&^anyRow | rowSeen
	switch {
	case r.Abandoned:
		f.flags |= rowAbandoned
	case r.State == "unknown":
		f.flags |= rowUnknown
	case r.State == "rolled_back":
		f.flags |= rowRejected
		if f.flags.has(saidRejected) && f.content != r.RejectHash && r.RejectHash != 0 {
			c.differs(n, f, r.Rejection, "the rejection")
		}
	case r.State == "committed":
		c.committedRow(n, f, r)
	}
	if r.Delivery == "pending" {
		f.flags |= rowPending
	}
}

func (c *checker) committedRow(n uint32, f *fact, r *Row) {
	f.flags |= rowCommitted
	if r.Line != nil {
		f.line, f.flags = *r.Line, f.flags|hasLine
	}
	c.compareAnswers(n, f, r)
	id := messageID(r.MessageID)
	f.queue, f.messageID = c.journal.queue(r.queue()), hashOf(string(id[:])) // messages are compared with these
	t := c.plan.transaction(n)
	k := &c.plan.kinds[t.kind]
	if k.BodyResult {
		c.results[n] = jsonHash(r.Result)
	}
	c.expect(n, f, "the row's kind", r.Kind, k.Name)
	c.expect(n, f, "the row's shard_key", r.ShardKey, c.plan.shardKey(t.key))
	c.expect(n, f, "the row's topic", r.Topic, k.Topic)
	c.expect(n, f, "the row's tag", r.Tag, c.plan.tag(t))
	if !r.Partial {
		c.expect(n, f, "the row's keys", strings.Join(r.Keys, " "), c.plan.key(t))
		c.expect(n, f, "the row's property", r.Properties[propertyName], c.plan.property(t))
	}
}

// compareAnswers compares the answers with the row.
func (c *checker) compareAnswers(n uint32, f *fact, r *Row) {
	if !f.flags.has(saidCommitted) || f.flags.has(rowDiffers) {
		return
	}
	id := messageID(r.MessageID)
	switch {
	case c.journal.names[f.queue] != r.queue():
		c.differs(n, f, r.said(), "the queue: "+c.journal.names[f.queue]+" in an answer, "+r.queue()+" in the row")
	case f.messageID != hashOf(string(id[:])):
		c.differs(n, f, r.said(), "the message id, "+r.MessageID+" in the row")
	case !f.flags.has(saidRejected) && f.content != r.content():
		c.differs(n, f, r.said(), "what they say of it")
	}
}

func (c *checker) differs(n uint32, f *fact, row *saying, what string) {
	f.flags |= rowDiffers
	if row != nil && len(c.rows) < mostRemembered {
		c.rows[n] = row
	}
	c.remember(n, "answer and row differ in "+what)
}

// expect notes content that differs from what was sent.
func (c *checker) expect(n uint32, f *fact, what, got, want string) {
	if got != want {
		f.flags |= wrongContent
		c.remember(n, fmt.Sprintf("%s is %.80q, sent was %.80q", what, got, want))
	}
}

// mostRemembered bounds the number of transactions with details.
const mostRemembered = 10_000

// remember stores a detail for the report, up to the bound.
func (c *checker) remember(n uint32, detail string) {
	if before, ok := c.wrong[n]; ok && len(before) < 500 {
		c.wrong[n] = before + "; " + detail
	} else if len(c.wrong) < mostRemembered {
		c.wrong[n] = detail
	}
}

// message takes one message. Each message comes once, and those of a queue in their order.
func (c *checker) message(m *Message) {
	n, ok := c.plan.number(m.transactionID())
	if !ok {
		if id := m.transactionID(); strings.HasPrefix(id, c.plan.prefix) {
			c.found.add(Unsent, 1, maxCount, id, "a message has an id that looks like this run's, and that no load makes")
		}
		return
	}
	f := c.journal.facts.at(n)
	t := c.plan.transaction(n)
	queue, key := c.journal.queue(m.Queue), messageID(m.MessageID)
	if addSaturated(&f.copies); f.copies == 1 {
		f.seen, f.offset, f.key = queue, m.Offset, hashOf(string(key[:]))
	} else if f.seen != queue || f.key != hashOf(string(key[:])) {
		f.flags |= wrongQueue
		c.remember(n, "a further copy is in "+m.Queue+" with the message id "+m.MessageID)
	}
	k := &c.plan.kinds[t.kind]
	if m.Topic != k.Topic {
		f.flags |= wrongQueue
		c.remember(n, "it is in the topic "+m.Topic+", not in "+k.Topic)
	}
	c.messageContent(n, f, t, m)
}

func (c *checker) messageContent(n uint32, f *fact, t transaction, m *Message) {
	k, id := &c.plan.kinds[t.kind], c.plan.id(n)
	if k.BodyResult {
		c.bodies[n] = jsonHash(m.Body)
	} else if want := c.plan.appendPayload(nil, t); !m.Unreadable && !bytes.Equal(m.Body, want) {
		f.flags |= wrongContent
		c.remember(n, fmt.Sprintf("the body of %d bytes is not the payload of %d bytes, from byte %d on", len(m.Body), len(want), firstDifference(m.Body, want)))
	}
	keys := id
	if key := c.plan.key(t); key != "" {
		keys += " " + key
	}
	c.expect(n, f, propTxID, m.ID, id)
	c.expect(n, f, propTxKind, m.Kind, k.Name)
	c.expect(n, f, "KEYS", m.Keys, keys)
	c.expect(n, f, "the tag", m.Tag, c.plan.tag(t))
	c.expect(n, f, "SHARDING_KEY", m.ShardKey, c.plan.shardKey(t.key))
	c.expect(n, f, "the property", m.Property, c.plan.property(t))
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// jsonHash returns the same hash for JSON texts with the same meaning.
func jsonHash(text []byte) uint64 {
	value := jsontext.Value(bytes.Clone(text))
	_ = value.Canonicalize() // other text stays unchanged
	return hashOf(string(value))
}

// change takes the id of a row in a kind's table.
func (c *checker) change(id string) {
	if n, ok := c.plan.number(id); ok {
		c.journal.facts.at(n).flags |= changed
	}
}

// halfDone returns the transactions whose row and business change do not agree.
func (c *checker) halfDone() (list []uint32) {
	c.journal.facts.each(func(n uint32, f *fact) {
		if c.isHalfDone(n, f) {
			list = append(list, n)
		}
	})
	return list
}

func (c *checker) isHalfDone(n uint32, f *fact) bool {
	return c.kinds[c.plan.transaction(n).kind].table != "" && f.flags.has(rowCommitted) != f.flags.has(changed)
}

// suspects returns transactions that look lost, like ghosts, or pending. Their rows or messages may have come after
// they were looked for.
func (c *checker) suspects() (list []uint32) {
	c.journal.facts.each(func(n uint32, f *fact) {
		if f.flags.has(rowCommitted) != (f.copies > 0) || f.flags.has(rowPending) {
			list = append(list, n)
		}
	})
	return list
}

// judge decides about each transaction. Call it once, after all rows and messages.
func (c *checker) judge() {
	c.journal.facts.each(func(n uint32, f *fact) {
		t := c.plan.transaction(n)
		c.count(t, f)
		c.judgeMessages(n, f, t)
		c.judgeAnswers(n, f, t)
	})
	c.judgeOrder()
}

func (c *checker) count(t transaction, f *fact) {
	k := &c.kinds[t.kind]
	for _, add := range []struct {
		is   bool
		into *uint64
	}{
		{f.sent != 0, &k.posted}, {f.flags.has(rowCommitted), &k.committed}, {f.flags.has(rowRejected), &k.rejected}, {f.copies > 0, &k.visible},
	} {
		if add.is {
			*add.into++
		}
	}
	if f.flags.has(hasLine) {
		k.ordered = true
	}
}

func (c *checker) judgeMessages(n uint32, f *fact, t transaction) {
	committed := f.flags.has(rowCommitted)
	switch {
	case committed && f.copies == 0 && c.maybe:
		c.unproved.lost++
	case committed && f.copies == 0:
		c.find(Lost, n, "the row is committed, no message is visible: "+c.describe(f))
	case !committed && f.copies > 0 && c.rowsOnly:
		c.unproved.ghosts++
	case !committed && f.copies > 0:
		c.find(Ghost, n, "a message is visible, no committed row: "+c.describe(f))
	}
	if f.copies > 1 {
		c.findMany(Doubled, uint64(f.copies-1), n, fmt.Sprintf("%d copies are visible: %s", f.copies, c.describe(f)))
	}
	switch {
	case !c.isHalfDone(n, f):
	case !committed && c.rowsOnly:
		c.unproved.ghosts++
	default:
		c.find(HalfDone, n, fmt.Sprintf("%s; its change is in the table %s: %t", c.describe(f), c.kinds[t.kind].table, f.flags.has(changed)))
	}
	c.judgeContent(n, f, t)
	if f.sent == 0 {
		c.find(Unsent, n, "the journal has no request with this id: "+c.describe(f))
	}
}

func (c *checker) judgeContent(n uint32, f *fact, t transaction) {
	known := f.flags.any(rowCommitted | saidCommitted)
	if f.copies > 0 && known && f.seen != f.queue {
		f.flags |= wrongQueue
	}
	if f.copies > 0 && known && f.key != f.messageID {
		f.flags |= wrongContent
		c.remember(n, "its message id is not the one of row and answers")
	}
	if c.plan.kinds[t.kind].BodyResult && f.copies > 0 && f.flags.has(rowCommitted) && c.bodies[n] != c.results[n] {
		f.flags |= wrongContent
		c.remember(n, "the body is not the row's result")
	}
	if f.flags.has(wrongQueue) {
		c.find(WrongQueue, n, c.describe(f)+c.detail(n))
	}
	if f.flags.has(wrongContent) {
		c.find(WrongContent, n, c.describe(f)+c.detail(n))
	}
}

func (c *checker) detail(n uint32) string {
	if detail, ok := c.wrong[n]; ok {
		return "; " + detail
	}
	return ""
}

// find reports a violation of one transaction.
func (c *checker) find(class string, n uint32, detail string) { c.findMany(class, 1, n, detail) }

func (c *checker) findMany(class string, count uint64, n uint32, detail string) {
	c.kinds[c.plan.transaction(n).kind].violations += count
	c.found.add(class, count, n, c.plan.id(n), detail)
}

// describe describes row and messages in words.
func (c *checker) describe(f *fact) string {
	row := "no row"
	switch {
	case f.flags.has(rowCommitted):
		row = "row committed, queue " + c.journal.names[f.queue]
	case f.flags.has(rowRejected):
		row = "row rolled back (rejected)"
	case f.flags.has(rowAbandoned):
		row = "row abandoned"
	case f.flags.has(rowUnknown):
		row = "outcome unknown"
	}
	if f.flags.has(rowPending) {
		row += ", delivery pending"
	}
	if f.flags.has(hasLine) {
		row += fmt.Sprintf(", line %d", f.line)
	}
	if f.copies == 0 {
		return row + "; not visible"
	}
	return fmt.Sprintf("%s; visible in %s at offset %d", row, c.journal.names[f.seen], f.offset)
}
