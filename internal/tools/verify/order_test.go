package verify

import (
	"testing"
)

func ordered(h *header) { h.Kinds[0].Ordered = true }

// sameKey returns the first n transactions of the victim's key, after it.
func (s *scene) sameKey(n int) (list []uint32) {
	for i := uint32(0); len(list) < n; i++ {
		if i != victim && s.plan.transaction(i).key == s.plan.transaction(victim).key {
			list = append(list, i)
		}
	}
	return list
}

func (s *scene) swapOffsets(a, b uint32) {
	s.msgs[a].Offset, s.msgs[b].Offset = s.msgs[b].Offset, s.msgs[a].Offset
}

func TestOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*header)
		story  func(*scene)
		want   map[string]uint64
		info   uint64 // inversions that are no violation
	}{
		"in order": {change: ordered, story: func(*scene) {}},
		"two neighbours of a key swapped, by their lines": {change: ordered, story: func(s *scene) {
			keys := s.sameKey(2)
			s.swapOffsets(keys[0], keys[1])
		}, want: map[string]uint64{Inversion: 1}},
		"two of one line": {change: ordered, story: func(s *scene) {
			keys := s.sameKey(2)
			*s.rows[keys[1]].Line = *s.rows[keys[0]].Line
		}, want: map[string]uint64{Inversion: 1}},
		"without lines, by the answers": {change: ordered, story: func(s *scene) {
			for _, r := range s.rows {
				r.Line = nil
			}
			keys := s.sameKey(2)
			s.swapOffsets(keys[0], keys[1])
		}, want: map[string]uint64{Inversion: 1}},
		"without lines, under way at the same time": {change: ordered, story: func(s *scene) {
			for _, r := range s.rows {
				r.Line = nil
			}
			keys := s.sameKey(2)
			s.swapOffsets(keys[0], keys[1])
			s.journal.facts.at(keys[1]).sent = 1
		}},
		"lines right, against what a client saw": {change: ordered, story: func(s *scene) {
			keys := s.sameKey(2)
			s.swapOffsets(keys[0], keys[1])
			*s.rows[keys[0]].Line, *s.rows[keys[1]].Line = *s.rows[keys[1]].Line, *s.rows[keys[0]].Line
		}, want: map[string]uint64{Inversion: 1}},
		"a kind without a promise": {story: func(s *scene) {
			for _, r := range s.rows {
				r.Line = nil
			}
			keys := s.sameKey(2)
			s.swapOffsets(keys[0], keys[1])
		}, info: 1},
		"a line makes a kind ordered": {story: func(s *scene) {
			keys := s.sameKey(2)
			s.swapOffsets(keys[0], keys[1])
		}, want: map[string]uint64{Inversion: 1}},
		"different keys do not wait for each other": {change: ordered, story: func(s *scene) {
			a, b := uint32(0), uint32(1)
			for s.plan.transaction(b).key == s.plan.transaction(a).key {
				b++
			}
			for n, m := range s.msgs { // the whole key moves behind the others
				if s.plan.transaction(uint32(n)).key == s.plan.transaction(a).key {
					m.Offset = 1000 + int64(n)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, tc.change)
			s.say(victim, s.committed(victim))
			tc.story(s)
			c := s.want(tc.want)
			if tc.info > 0 && c.kinds[0].inversions != tc.info {
				t.Errorf("got %d inversions for information, want %d", c.kinds[0].inversions, tc.info)
			}
		})
	}
}

// TestSplitKey: messages of one key in two queues have no order that can be seen.
func TestSplitKey(t *testing.T) {
	s := newScene(t, ordered)
	s.say(victim, s.committed(victim))
	moved := s.sameKey(1)[0]
	s.rows[moved].QueueID, s.msgs[moved].Queue = 77, "broker-a:77"
	c := newChecker(s.plan, newJournal())
	for n := range s.rows {
		a := s.committed(uint32(n))
		c.journal.answered(uint32(n), &a, c.journal.sent(uint32(n), Post, 0))
	}
	for n := range s.rows {
		c.row(s.rows[n])
		c.message(s.msgs[n])
	}
	if c.judge(); c.kinds[0].splitKeys != 1 || c.found.counts[Inversion] != 0 {
		t.Errorf("got %d split keys and %v, want 1 and nothing", c.kinds[0].splitKeys, c.found.counts)
	}
}
