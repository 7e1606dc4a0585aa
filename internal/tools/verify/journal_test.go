package verify

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// anyAnswer draws an answer of any kind.
func anyAnswer(dice *rand.Rand) Answer {
	a := Answer{
		Class: Class(1 + dice.IntN(classes-1)), Purpose: Purpose(dice.IntN(3)), Status: uint16(dice.IntN(600)), Replayed: dice.IntN(2) == 0,
		Delivered: dice.IntN(2) == 0, Target: uint8(dice.IntN(3)), Latency: time.Duration(dice.IntN(1e9)).Truncate(time.Microsecond), Content: dice.Uint64(),
	}
	if a.Class == Committed {
		a.Queue, a.MessageID = queueName("broker-a", dice.IntN(8)), [16]byte{byte(dice.IntN(256)), 1}
		a.Said = &saying{created: dice.Int64N(1e16), decided: dice.Int64N(1e16), result: fmt.Sprint(dice.IntN(1e6))}
		a.Said.texts[dice.IntN(sayTexts)] = fmt.Sprint("text ", dice.IntN(100))
	}
	return a
}

// TestJournalIsReadAsItWasWritten: reading the file gives the same facts as writing it.
func TestJournalIsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	h := sceneHeader()
	h.Started = time.Now()
	written, err := createJournal(path, h)
	if err != nil {
		t.Fatal(err)
	}
	dice := rand.New(rand.NewPCG(1, 2))
	written.target(0, "http://a")
	clocks := make(map[uint32]uint32)
	var saidWritten, saidRead []*saying
	for range 20_000 {
		n := uint32(dice.IntN(3000))
		if clock, open := clocks[n]; open {
			a := anyAnswer(dice)
			written.answered(n, &a, clock)
			if a.Said != nil {
				saidWritten = append(saidWritten, a.Said)
			}
			delete(clocks, n)
		} else {
			clocks[n] = written.sent(n, Purpose(dice.IntN(3)), 0)
		}
	}
	// The order matters: an answer, and right after it a GET that finds nothing.
	a := Answer{Class: Committed, Status: 201, Queue: "broker-a:1", MessageID: [16]byte{1}}
	written.answered(5000, &a, written.sent(5000, Post, 0))
	a = Answer{Class: NotFound, Status: 404, Purpose: Get}
	written.answered(5000, &a, written.sent(5000, Get, 0))
	written.gaveUp(17)
	written.suspected(3)
	written.end(90 * time.Second)
	if err := written.close(); err != nil {
		t.Fatal(err)
	}

	read, texts := newJournal(), []string{""}
	whole, err := readJournal(path, func(got *header) error {
		if diff := cmp.Diff(h.Kinds[0].Payload, got.Kinds[0].Payload); diff != "" || got.Run != h.Run || !got.Started.Equal(h.Started) {
			t.Errorf("header: got %+v, want %+v", got, h)
		}
		return nil
	}, func(e *event) {
		read.apply(e)
		if e.kind == eventText {
			texts = append(texts, e.name)
		} else if e.said != nil {
			saidRead = append(saidRead, e.said.with(texts))
		}
	})
	if err != nil || !whole {
		t.Fatalf("got whole %t, %v", whole, err)
	}
	for n := range written.facts.count {
		if got, want := *read.facts.at(n), *written.facts.at(n); got != want {
			t.Fatalf("transaction %d: got %+v, want %+v", n, got, want)
		}
	}
	if read.tally != written.tally || read.clock != written.clock || read.suspect != 3 || !read.ended || read.elapsed != 90*time.Second {
		t.Errorf("got tally %+v, clock %d, suspect %d, ended %t after %s", read.tally, read.clock, read.suspect, read.ended, read.elapsed)
	}
	if diff := cmp.Diff(saidWritten, saidRead, cmp.AllowUnexported(saying{})); diff != "" || len(saidRead) == 0 {
		t.Errorf("what %d answers say (-want +got):\n%s", len(saidRead), diff)
	}
	if diff := cmp.Diff(written.names, read.names); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
}

// TestJournalThatIsCutShort: a journal is read up to the place where it is cut, wherever that is.
func TestJournalThatIsCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := createJournal(path, sceneHeader())
	if err != nil {
		t.Fatal(err)
	}
	begin, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	a := Answer{Class: Committed, Status: 201, Queue: "broker-a:1", MessageID: [16]byte{1}}
	for n := range uint32(3) {
		j.answered(n, &a, j.sent(n, Post, 0))
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ends := 0
	for size := int(begin.Size()); size <= len(text); size++ {
		if err := os.WriteFile(path, text[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		read := newJournal()
		whole, err := readJournal(path, func(*header) error { return nil }, read.apply)
		if err != nil {
			t.Fatalf("cut at %d of %d: %v", size, len(text), err)
		}
		if whole {
			ends++
		}
	}
	if ends != 8 { // 3 sent, 3 answered, 1 queue, and the beginning
		t.Errorf("%d places are the end of an event, want 8", ends)
	}
}

func TestNoJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	for _, text := range []string{"", "something else", journalMagic, journalMagic + "\x05{}", journalMagic + "\x02[]"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readJournal(path, func(*header) error { return nil }, func(*event) {}); err == nil {
			t.Errorf("%q is read as a journal", text)
		}
	}
	if _, err := createJournal(path, sceneHeader()); err == nil {
		t.Error("a file that is there is overwritten")
	}
}

// TestMemoryPerTransaction holds a whole check, with its order, to 200 bytes per transaction.
func TestMemoryPerTransaction(t *testing.T) {
	const count, limit = 50_000, 200
	before := heap()
	c := fabricate(t, count)
	kept := heap()
	c.judge()
	judged := heap()
	t.Logf("%d bytes per transaction before judging, %d after", (kept-before)/count, (judged-before)/count)
	if per := (max(kept, judged) - before) / count; per > limit {
		t.Errorf("got %d bytes per transaction, want at most %d", per, limit)
	}
	if c.found.total() != 0 {
		t.Errorf("got %v, want nothing", c.found.counts)
	}
	runtime.KeepAlive(c)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fabricate makes a check of that many honest transactions.
func fabricate(tb testing.TB, count uint32) *checker {
	h := sceneHeader()
	h.Keys, h.Kinds[0].Ordered, h.Started = 1000, true, time.Now()
	p, err := newPlan(h)
	if err != nil {
		tb.Fatal(err)
	}
	j, err := createJournal(filepath.Join(tb.TempDir(), "journal"), h)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = j.close() })
	s := &scene{plan: p, journal: j}
	c := newChecker(p, j)
	for n := range count {
		s.rows = []*Row{s.rowOf(n)}
		r := s.rows[0]
		a := Answer{Class: Committed, Status: 201, Delivered: true, Queue: r.queue(), MessageID: messageID(r.MessageID), Content: r.content()}
		j.answered(n, &a, j.sent(n, Post, 0))
		c.row(r)
		c.message(s.messageOf(r, int64(n)))
	}
	return c
}
