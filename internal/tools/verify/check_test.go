package verify

import (
	"slices"
	"testing"
)

// TestEachFaultIsFound breaks one thing at a time. It also checks that nothing is found where everything is right.
func TestEachFaultIsFound(t *testing.T) {
	one := func(classes ...string) map[string]uint64 {
		m := make(map[string]uint64)
		for _, class := range classes {
			m[class]++
		}
		return m
	}
	for name, tc := range map[string]struct {
		change func(*header)
		story  func(*scene)
		want   map[string]uint64
	}{
		"all is right": {story: func(s *scene) { s.say(victim, s.committed(victim)) }},

		// What is committed and what is visible.
		"lost": {story: func(s *scene) {
			a := s.committed(victim)
			a.Delivered = false
			s.say(victim, a)
			s.drop(victim, false, true)
		}, want: one(Lost)},
		"lost although said to be delivered": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			s.drop(victim, false, true)
		}, want: one(Lost, FalseDelivered)},
		"lost, nobody was told anything": {story: func(s *scene) {
			s.say(victim, Answer{Class: TimedOut})
			s.drop(victim, false, true)
		}, want: one(Lost)},
		"doubled": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			for offset := range int64(2) {
				s.msgs = append(s.msgs, s.messageOf(s.rows[victim], 100+offset))
			}
		}, want: map[string]uint64{Doubled: 2}},
		"ghost": {story: func(s *scene) {
			s.say(victim, Answer{Class: TimedOut})
			s.drop(victim, true, false)
		}, want: one(Ghost)},
		"ghost of a rejected transaction": {story: func(s *scene) {
			s.say(victim, rejected())
			m := s.msgs[victim]
			s.reject(victim)
			s.msgs[victim] = m
		}, want: one(Ghost)},
		"ghost of an abandoned one": {story: func(s *scene) {
			s.say(victim, Answer{Class: HungUp})
			s.rows[victim].State, s.rows[victim].Abandoned = "rolled_back", true
		}, want: one(Ghost)},
		"neither row nor message": {story: func(s *scene) {
			s.say(victim, Answer{Class: HungUp})
			s.drop(victim, true, true)
		}},

		// The business change.
		"all changes are there": {story: func(s *scene) { s.allChanged(); s.say(victim, s.committed(victim)) }},
		"committed without its change": {story: func(s *scene) {
			s.allChanged()
			s.say(victim, s.committed(victim))
			s.changes = slices.DeleteFunc(s.changes, func(id string) bool { return id == s.plan.id(victim) })
		}, want: one(HalfDone)},
		"change without a row": {story: func(s *scene) {
			s.allChanged()
			s.say(victim, Answer{Class: HungUp})
			s.drop(victim, true, true)
		}, want: one(HalfDone)},
		"change of a rejected one": {story: func(s *scene) {
			s.allChanged()
			s.say(victim, rejected())
			s.reject(victim)
		}, want: one(HalfDone)},
		"change that was never sent": {story: func(s *scene) {
			s.allChanged()
			s.say(victim, s.committed(victim))
			s.changes = append(s.changes, s.plan.id(sceneSize+5))
		}, want: one(HalfDone, Unsent)},

		// The queue, and the content.
		"another queue": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			s.msgs[victim].Queue = "broker-a:99"
		}, want: one(WrongQueue)},
		"another broker": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			s.msgs[victim].Queue = "broker-b:" + s.msgs[victim].Queue[len("broker-a:"):]
		}, want: one(WrongQueue)},
		"another topic":        {story: broken(func(m *Message) { m.Topic = "elsewhere" }), want: one(WrongQueue)},
		"another body":         {story: broken(func(m *Message) { m.Body[5]++ }), want: one(WrongContent)},
		"a shorter body":       {story: broken(func(m *Message) { m.Body = m.Body[1:] }), want: one(WrongContent)},
		"another tag":          {story: broken(func(m *Message) { m.Tag += "x" }), want: one(WrongContent)},
		"other keys":           {story: broken(func(m *Message) { m.Keys += " x" }), want: one(WrongContent)},
		"another shard key":    {story: broken(func(m *Message) { m.ShardKey += "x" }), want: one(WrongContent)},
		"another kind":         {story: broken(func(m *Message) { m.Kind = "k.two" }), want: one(WrongContent)},
		"no TX_ID":             {story: broken(func(m *Message) { m.ID = "" }), want: one(WrongContent)},
		"another property":     {story: broken(func(m *Message) { m.Property += "x" }), want: one(WrongContent)},
		"another message id":   {story: broken(func(m *Message) { m.MessageID = "FF" + m.MessageID[2:] }), want: one(WrongContent)},
		"row of another kind":  {story: func(s *scene) { s.rows[victim].Kind = "k.two"; s.say(victim, s.committed(victim)) }, want: one(WrongContent)},
		"row of another tag":   {story: func(s *scene) { s.rows[victim].Tag = "x"; s.say(victim, s.committed(victim)) }, want: one(WrongContent)},
		"row with another key": {story: func(s *scene) { s.rows[victim].ShardKey = "x"; s.say(victim, s.committed(victim)) }, want: one(WrongContent)},

		// What was answered.
		"said committed, no row": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			s.drop(victim, true, true)
		}, want: one(FalseCommitted, FalseDelivered)},
		"said committed, is rejected": {story: func(s *scene) {
			a := s.committed(victim)
			a.Delivered = false
			s.say(victim, a)
			s.reject(victim)
		}, want: one(FalseCommitted)},
		"answer names another queue": {story: func(s *scene) {
			a := s.committed(victim)
			a.Queue = "broker-b:0"
			s.say(victim, a)
		}, want: one(FalseDiffers)},
		"answer names another message": {story: func(s *scene) {
			a := s.committed(victim)
			a.MessageID[3]++
			s.say(victim, a)
		}, want: one(FalseDiffers)},
		"answer has another result": {story: func(s *scene) {
			a := s.committed(victim)
			a.Content++
			s.say(victim, a)
		}, want: one(FalseDiffers)},
		"two answers with different queues": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			a := s.replayed(victim)
			a.Queue = "broker-b:0"
			s.say(victim, a)
		}, want: one(FalseContradiction)},
		"two answers with different messages": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			a := s.replayed(victim)
			a.MessageID[0]++
			s.say(victim, a)
		}, want: one(FalseContradiction)},
		"two answers with different results": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			a := s.replayed(victim)
			a.Content++
			s.say(victim, a)
		}, want: one(FalseContradiction)},
		"committed, then rejected": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			s.say(victim, rejected())
		}, want: one(FalseContradiction, FalseRejected)},
		"rejected for two reasons": {story: func(s *scene) {
			s.reject(victim)
			s.say(victim, rejected())
			s.say(victim, Answer{Class: Rejected, Status: 422, Content: 78})
		}, want: one(FalseContradiction)},
		"rejected, for another reason in the row": {story: func(s *scene) {
			s.reject(victim)
			s.rows[victim].RejectHash = 78
			s.say(victim, rejected())
		}, want: one(FalseDiffers)},
		"said rejected, is committed": {story: func(s *scene) { s.say(victim, rejected()); s.say(victim, Answer{Class: Broken}) }, want: one(FalseRejected)},
		"said rejected, not kept": {story: func(s *scene) {
			s.say(victim, rejected())
			s.drop(victim, true, true)
		}, want: one(FalseNotKept)},
		"truly rejected, twice": {story: func(s *scene) { s.reject(victim); s.say(victim, rejected()); s.say(victim, rejected()) }},
		"503, and committed by it": {story: func(s *scene) {
			s.say(victim, Answer{Class: BrokerUnavailable, Status: 503})
		}, want: one(FalseNothing)},
		"503, then replayed": {story: func(s *scene) {
			s.say(victim, Answer{Class: DatabaseUnavailable, Status: 503})
			s.say(victim, s.replayed(victim))
		}, want: one(FalseNothing)},
		"400, and committed by it": {story: func(s *scene) { s.say(victim, Answer{Class: Refused, Status: 400}) }, want: one(FalseNothing)},
		"not sent, and committed":  {story: func(s *scene) { s.say(victim, Answer{Class: NotSent}) }, want: one(FalseNothing)},
		"replayed, and nobody was first": {story: func(s *scene) {
			s.say(victim, s.replayed(victim))
		}, want: one(FalseNothing)},
		"503, then committed": {story: func(s *scene) {
			s.say(victim, Answer{Class: BrokerUnavailable, Status: 503})
			s.say(victim, s.committed(victim))
		}},
		"hung up, 503, then replayed": {story: func(s *scene) {
			s.say(victim, Answer{Class: HungUp})
			s.say(victim, Answer{Class: Overloaded, Status: 503})
			s.say(victim, s.replayed(victim))
		}},
		"503, and a request without an answer": {story: func(s *scene) {
			s.journal.sent(victim, Post, 0)
			s.say(victim, Answer{Class: BrokerUnavailable, Status: 503})
		}},
		"500, and committed": {story: func(s *scene) { s.say(victim, Answer{Class: Internal, Status: 500}) }},
		"409, and committed": {story: func(s *scene) { s.say(victim, Answer{Class: Conflict, Status: 409}) }},
		"executed twice": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			s.say(victim, s.committed(victim))
		}, want: one(FalseTwice)},
		"unknown, then committed": {story: func(s *scene) {
			s.say(victim, Answer{Class: Unknown, Status: 202})
			s.say(victim, s.replayed(victim))
		}},
		"unknown, never committed": {story: func(s *scene) {
			s.say(victim, Answer{Class: Unknown, Status: 202})
			s.say(victim, Answer{Class: NotFound, Status: 404, Purpose: Get})
			s.drop(victim, true, true)
		}},
		"unknown for good": {story: func(s *scene) {
			s.say(victim, Answer{Class: Unknown, Status: 202})
			s.rows[victim].State, s.rows[victim].Delivery = "unknown", "none"
			s.drop(victim, false, true)
		}, want: one(FalseUnknown)},
		"unknown for good, says GET": {story: func(s *scene) {
			s.say(victim, Answer{Class: Unknown, Status: 202})
			s.journal.facts.at(victim).flags |= askedUnknown
			s.drop(victim, true, true)
		}, want: one(FalseUnknown)},
		"GET does not find what was committed": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			s.say(victim, Answer{Class: NotFound, Status: 404, Purpose: Get})
		}, want: one(FalseGone)},
		"GET was sent before the answer came": {story: func(s *scene) {
			asked := s.journal.sent(victim, Get, 0)
			s.say(victim, s.committed(victim))
			s.journal.answered(victim, &Answer{Class: NotFound, Status: 404, Purpose: Get}, asked)
		}},
		"another request accepted": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			a := s.committed(victim)
			a.Purpose = Other
			s.say(victim, a)
		}, want: one(FalseOther)},
		"another request refused": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			s.say(victim, Answer{Class: Mismatch, Status: 422, Purpose: Other})
		}},
		"mismatch without another": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			s.say(victim, Answer{Class: Mismatch, Status: 422})
		}, want: one(FalseMismatch)},
		"malformed": {story: func(s *scene) {
			s.say(victim, Answer{Class: Malformed, Status: 201})
		}, want: one(FalseMalformed)},
		"not rejected": {
			change: func(h *header) { h.Shares.Rejected = 1; h.Kinds[0].Rejected = h.Kinds[0].Payload },
			story: func(s *scene) {
				s.say(victim, s.committed(victim))
				for n := range uint32(sceneSize) {
					if n != victim {
						s.drop(n, true, true)
						*s.journal.facts.at(n) = fact{}
					}
				}
			}, want: one(FalseNotRejected),
		},

		// What was never sent.
		"unsent and lost": {story: func(s *scene) { s.drop(victim, false, true) }, want: one(Lost, Unsent)},
		"unsent, beyond the last": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			s.rows = append(s.rows, s.rowOf(5_000_000))
		}, want: one(Lost, Unsent)},
		"unsent, no number": {story: func(s *scene) {
			s.say(victim, s.committed(victim))
			strange := *s.rows[bystander]
			strange.ID = "v-test-strange"
			s.rows = append(s.rows, &strange)
		}, want: one(Unsent)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, tc.change)
			tc.story(s)
			s.want(tc.want)
		})
	}
}

// broken answers truly, and changes the message.
func broken(change func(*Message)) func(*scene) {
	return func(s *scene) {
		s.say(victim, s.committed(victim))
		change(s.msgs[victim])
	}
}

// TestRowsThatComeAgain: a row that was missing at the first look, or has changed since, counts as it is now.
func TestRowsThatComeAgain(t *testing.T) {
	s := newScene(t, nil)
	s.say(victim, s.committed(victim))
	c := newChecker(s.plan, s.journal)
	late := *s.rows[victim]
	s.rows[victim].State, s.rows[victim].Abandoned = "rolled_back", true
	s.rows[bystander].Delivery = "pending"
	for _, r := range s.rows {
		c.row(r)
	}
	for _, m := range s.msgs {
		c.message(m)
	}
	if got := c.suspects(); !slices.Equal(got, []uint32{bystander, victim}) {
		t.Fatalf("got suspects %v, want the one whose row is pending and the one whose row is abandoned", got)
	}
	s.rows[bystander].Delivery = "delivered"
	for range 2 {
		c.row(&late)
		c.row(s.rows[bystander])
	}
	if got := c.suspects(); len(got) != 0 {
		t.Fatalf("got suspects %v, want none", got)
	}
	if c.judge(); c.found.total() != 0 {
		t.Errorf("got %v, want nothing", c.found.list())
	}
}

// TestWhatWasNotReadIsNoViolation: when not all rows and queues could be read, missing ones are no violation.
func TestWhatWasNotReadIsNoViolation(t *testing.T) {
	s := newScene(t, nil)
	s.say(victim, s.committed(victim))
	c := newChecker(s.plan, s.journal)
	c.maybe, c.rowsOnly = true, true
	for n, r := range s.rows {
		if n != victim {
			c.row(r)
		}
		if n != bystander {
			c.message(s.msgs[n])
		}
	}
	c.judge()
	if c.found.total() != 0 {
		t.Errorf("got %v, want nothing", c.found.list())
	}
	if u := c.unproved; u.lost != 1 || u.ghosts != 1 || u.answers != 2 {
		t.Errorf("got %+v unproved, want 1 lost, 1 ghost, 2 answers", u)
	}
}

func TestBodyOfResult(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want uint64
	}{
		"the result":       {`{"b":[2],"a":1}`, 0},
		"another result":   {`{"b":[3],"a":1}`, 1},
		"not even a value": {`{"b":`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, func(h *header) { h.Kinds[0].BodyResult = true })
			s.say(victim, s.committed(victim))
			for _, m := range s.msgs {
				m.Body = []byte(`{"a": 1, "b": [2]}`)
			}
			s.msgs[victim].Body = []byte(tc.body)
			if got, _ := s.judge(); got[WrongContent] != tc.want {
				t.Errorf("got %v, want %d wrong contents", got, tc.want)
			}
		})
	}
}
