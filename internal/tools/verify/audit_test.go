package verify

import (
	"maps"
	"testing"
	"time"
)

// TestAuditJudges: each way in which row, change, answer and message of a transaction can disagree has its class.
func TestAuditJudges(t *testing.T) {
	t.Parallel()
	id, other := messageID("a"), messageID("b")
	right := sighting{answered: true, delivered: true, row: true, change: true, line: 1, answerQueue: "a:1", rowQueue: "a:1", answerMessage: id, rowMessage: id}
	message := Message{ID: "t", Queue: "a:1", MessageID: "a", ShardKey: "k"}
	for _, tt := range []struct {
		name     string
		wrong    func(s *sighting)
		messages []Message
		want     map[string]int
	}{
		{"right", func(*sighting) {}, []Message{message}, map[string]int{}},
		{"no answer", func(s *sighting) { s.answered, s.delivered = false, false }, []Message{message}, map[string]int{}},
		{"lost", func(s *sighting) { s.delivered = false }, nil, map[string]int{Lost: 1}},
		{"lost, and said to be visible", func(*sighting) {}, nil, map[string]int{Lost: 1, "delivered_not_visible": 1}},
		{"doubled", func(*sighting) {}, []Message{message, message}, map[string]int{Doubled: 1}},
		{"ghost", func(s *sighting) { *s = sighting{} }, []Message{message}, map[string]int{Ghost: 1}},
		{"no change", func(s *sighting) { s.change = false }, []Message{message}, map[string]int{HalfDone: 1}},
		{"only a change", func(s *sighting) { *s = sighting{change: true} }, nil, map[string]int{HalfDone: 1}},
		{"only an answer", func(s *sighting) { *s = sighting{answered: true} }, nil, map[string]int{"committed_without_row": 1}},
		{"wrong queue", func(s *sighting) { s.rowQueue, s.answerQueue = "a:2", "a:2" }, []Message{message}, map[string]int{WrongQueue: 1}},
		{"wrong message", func(s *sighting) { s.rowMessage, s.answerMessage = other, other }, []Message{message}, map[string]int{WrongContent: 1}},
		{"another queue in the answer", func(s *sighting) { s.answerQueue = "a:2" }, []Message{message}, map[string]int{"answer_differs_from_row": 1}},
		{"pending", func(s *sighting) { s.pending = true }, []Message{message}, map[string]int{"pending": 1}},
	} {
		k := &auditedKind{Audited: Audited{Kind: "note"}, seen: map[string]*sighting{}}
		s := right
		if tt.wrong(&s); s != (sighting{}) {
			k.seen["t"] = &s
		}
		for _, m := range tt.messages {
			k.message(&m)
		}
		f := k.judge()
		if !maps.Equal(f.Classes, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, f.Classes, tt.want)
		}
	}
}

func TestAuditOfAnotherProgram(t *testing.T) {
	t.Parallel()
	k := &auditedKind{Audited: Audited{Topic: "java"}, seen: map[string]*sighting{}}
	for _, id := range []string{"right", "lost"} {
		k.at(id).change = true
	}
	for _, id := range []string{"right", "ghost"} {
		k.message(&Message{Keys: id + " further", Queue: "a:1"})
	}
	f := k.judge()
	if want := map[string]int{Lost: 1, Ghost: 1}; !maps.Equal(f.Classes, want) || f.Committed != 2 || f.Visible != 2 {
		t.Errorf("got %+v, want %v of 2 transactions and 2 messages", f, want)
	}
}

func TestAuditSeesInversions(t *testing.T) {
	t.Parallel()
	k := &auditedKind{Audited: Audited{Kind: "note", Ordered: true}, seen: map[string]*sighting{}, last: map[string]int64{}}
	for id, line := range map[string]int64{"a": 1, "b": 2, "c": 3, "d": 1} {
		*k.at(id) = sighting{row: true, change: true, line: line, rowQueue: "a:1"}
	}
	for _, m := range []Message{{ID: "a", ShardKey: "k"}, {ID: "c", ShardKey: "k"}, {ID: "d", ShardKey: "other"}, {ID: "b", ShardKey: "k"}} {
		m.Queue = "a:1"
		k.message(&m)
	}
	if f := k.judge(); !maps.Equal(f.Classes, map[string]int{Inversion: 1}) || f.Examples[0] != "b: inversion" {
		t.Errorf("got %+v, want an inversion of b", f)
	}
}

func TestIDFrom(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(0x01a229a15663)
	const id = "01a229a1-5663-7b4e-82a8-c47e2eb38465"
	if from := idFrom(at); from >= id || idFrom(at.Add(time.Millisecond)) <= id {
		t.Errorf("got %q, want it to be just before %q", from, id)
	}
}
