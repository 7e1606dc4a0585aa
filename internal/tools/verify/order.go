package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// place is the place of a visible message in its queue.
type place struct {
	topic  int32 // index of the first kind with the same topic
	key    uint32
	n      uint32
	kind   uint8
	queue  uint16
	offset int64
}

// judgeOrder compares, for each topic and shard key, the order of visible messages with the order of commits. For kinds
// with a line, the line gives the order of commits. For all kinds, answers give a part of it: a request that was sent
// after another's answer "committed" had come has committed later. Only ordered kinds promise an order; for the others,
// inversions are counted and are no violation.
func (c *checker) judgeOrder() {
	places := c.places()
	for len(places) > 0 {
		n := 1
		for n < len(places) && places[n].topic == places[0].topic && places[n].key == places[0].key {
			n++
		}
		c.judgeKey(places[:n])
		places = places[n:]
	}
}

// places returns all visible, committed transactions by topic, key and position.
func (c *checker) places() []place {
	var list []place
	topics := make([]int32, len(c.plan.kinds))
	for i := range c.plan.kinds {
		topics[i] = int32(slices.IndexFunc(c.plan.kinds, func(k Kind) bool { return k.Topic == c.plan.kinds[i].Topic }))
	}
	c.journal.facts.each(func(n uint32, f *fact) {
		if f.flags.has(rowCommitted) && f.copies > 0 {
			t := c.plan.transaction(n)
			list = append(list, place{topics[t.kind], t.key, n, t.kind, f.seen, f.offset})
		}
	})
	slices.SortFunc(list, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.key, b.key), cmp.Compare(a.queue, b.queue), cmp.Compare(a.offset, b.offset))
	})
	return list
}

// judgeKey judges one key's messages, by queue and offset. It judges ordered kinds and others apart, because they do
// not wait for each other.
func (c *checker) judgeKey(places []place) {
	for _, ordered := range []bool{true, false} {
		var group []place
		for _, p := range places {
			if c.kinds[p.kind].ordered == ordered {
				group = append(group, p)
			}
		}
		if len(group) == 0 {
			continue
		}
		if last := group[len(group)-1]; last.queue != group[0].queue {
			c.kinds[last.kind].splitKeys++
		}
		for len(group) > 0 {
			n := 1
			for n < len(group) && group[n].queue == group[0].queue {
				n++
			}
			c.judgeQueue(group[:n], ordered)
			group = group[n:]
		}
	}
}

// judgeQueue judges the messages of one key in one queue, in their order there. If all have a line, it compares the
// messages with the line, and the line with the answers. Otherwise it compares the messages with the answers.
func (c *checker) judgeQueue(places []place, ordered bool) {
	bad := make(map[uint32]string)
	if ordered && c.byLine(places, bad) {
		places = slices.SortedStableFunc(slices.Values(places), func(a, b place) int {
			return cmp.Compare(c.journal.facts.at(a.n).line, c.journal.facts.at(b.n).line)
		})
	}
	c.byAnswers(places, bad)
	for _, p := range places {
		detail, ok := bad[p.n]
		if !ok {
			continue
		}
		c.kinds[p.kind].inversions++
		if ordered {
			c.find(Inversion, p.n, detail)
		}
	}
}

// byLine finds messages that come after one with a later, or the same, place in the key's line. It returns whether all
// have a place.
func (c *checker) byLine(places []place, bad map[uint32]string) (all bool) {
	highest, holder := int64(math.MinInt64), uint32(0)
	all = true
	for _, p := range places {
		f := c.journal.facts.at(p.n)
		if !f.flags.has(hasLine) {
			c.kinds[p.kind].noLine++
			all = false
			continue
		}
		if f.line <= highest {
			bad[p.n] = fmt.Sprintf("line %d of key %s comes after line %d (%s): %s", f.line, c.plan.shardKey(p.key), highest, c.plan.id(holder), c.describe(f))
		} else {
			highest, holder = f.line, p.n
		}
	}
	return all
}

// byAnswers finds messages that come before one whose answer had come before they were sent.
func (c *checker) byAnswers(places []place, bad map[uint32]string) {
	earliest, holder := uint32(math.MaxUint32), uint32(0)
	for i := len(places) - 1; i >= 0; i-- {
		n := places[i].n
		f := c.journal.facts.at(n)
		if _, found := bad[n]; f.sent != 0 && earliest < f.sent && !found {
			bad[n] = fmt.Sprintf("it comes before %s, which was answered \"committed\" before this one was sent: %s", c.plan.id(holder), c.describe(f))
		}
		if f.committed != 0 && f.committed < earliest {
			earliest, holder = f.committed, n
		}
	}
}
