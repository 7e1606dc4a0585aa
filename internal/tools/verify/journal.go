package verify

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// The journal is a file. It has a magic line, the header as one JSON object behind its length, and then events, each
// behind its length in one byte. Numbers are unsigned varints, times are microseconds since the event before. A file
// can end in the middle of an event, because the machine died; it is read up to there.
const journalMagic = "txsvc verify journal 1\n"

// header is the beginning of a journal. It has everything that a later check needs.
type header struct {
	Run          string    `json:"run"`
	Seed         uint64    `json:"seed"`
	Started      time.Time `json:"started"`
	Kinds        []Kind    `json:"kinds"`
	LeftOut      []string  `json:"left_out"` // kinds without a payload
	Keys         int       `json:"keys"`
	Distribution string    `json:"distribution"`
	Shares       Shares    `json:"shares"`
	Anchors      uint32    `json:"anchors"`
	Count        int       `json:"count"`
	Rate         float64   `json:"rate"`
	Concurrency  int       `json:"concurrency"`
	Starts       []start   `json:"starts"` // where the queues ended before the first request
	Lines        bool      `json:"lines"`  // whether the database has the lines of ordered kinds
}

// start is where one queue ended.
type start struct {
	Topic  string `json:"topic"`
	Broker string `json:"broker"`
	Queue  int    `json:"queue"`
	Offset int64  `json:"offset"`
}

// Types of events.
const (
	eventSent    = iota + 1 // number, purpose, target
	eventAnswer             // number, clock since sent, class, purpose, status, bits, target, latency, queue, message id, content, saying
	eventQueue              // name: the next index
	eventTarget             // URL: the next index
	eventGaveUp             // number
	eventEnd                // the load ended
	eventSuspect            // copies that the service counted since the last such event
	eventText               // text of answers: the next index, from 1 on; 0 is the empty one
)

const maxEvent = 255

// journal notes events, in memory as facts and in the file. It is safe for concurrent use.
type journal struct {
	mu      sync.Mutex
	file    *os.File // nil: in memory only
	w       *bufio.Writer
	err     error // of writing; the first
	clock   uint32
	last    time.Time
	facts   facts
	names   []string // of queues; 0 is none
	index   map[string]uint16
	texts   map[string]uint64 // of answers; in the file only
	urls    int
	tally   tally
	buf     []byte
	suspect uint64
	ended   bool
	elapsed time.Duration // from the start to the load's end
}

// tally has the counts of all answers.
type tally struct {
	Requests [len(purposes)]uint64
	Answers  [len(purposes)][classes]uint64
	Replayed uint64
}

var purposes = [...]Purpose{Post, Other, Get}

func newJournal() *journal {
	return &journal{names: []string{""}, index: map[string]uint16{"": 0}, texts: map[string]uint64{"": 0}, last: time.Now()}
}

// createJournal begins a file.
func createJournal(path string, h *header) (*journal, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encoding the journal's header: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("creating the journal: %w", err)
	}
	j := newJournal()
	j.file, j.w, j.last = file, bufio.NewWriterSize(file, 256<<10), h.Started
	_, _ = j.w.WriteString(journalMagic) // Flush returns the error
	_, _ = j.w.Write(binary.AppendUvarint(nil, uint64(len(text))))
	_, _ = j.w.Write(text)
	return j, j.w.Flush()
}

// sent notes a request before it is sent, and returns its clock.
func (j *journal) sent(n uint32, purpose Purpose, target int) uint32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.applySent(n, purpose)
	j.write(eventSent, func(b []byte) []byte {
		return append(binary.AppendUvarint(b, uint64(n)), byte(purpose), byte(target))
	})
	return j.clock
}

func (j *journal) applySent(n uint32, purpose Purpose) {
	j.clock++
	j.facts.at(n).request(purpose, j.clock)
	j.tally.Requests[purpose]++
}

// answered notes an answer to the request that was sent at that clock.
func (j *journal) answered(n uint32, a *Answer, sent uint32) {
	j.mu.Lock()
	defer j.mu.Unlock()
	queue := j.queue(a.Queue)
	j.applyAnswer(n, a, queue, sent)
	said := j.said(a.Said)
	j.write(eventAnswer, func(b []byte) []byte {
		b = binary.AppendUvarint(b, uint64(n))
		b = binary.AppendUvarint(b, uint64(j.clock-sent))
		b = append(b, byte(a.Class), byte(a.Purpose))
		b = binary.BigEndian.AppendUint16(b, a.Status)
		b = append(b, bitsOf(a.Replayed, a.Delivered), a.Target)
		b = binary.AppendUvarint(b, uint64(a.Latency.Microseconds()))
		b = binary.AppendUvarint(b, uint64(queue))
		if queue != 0 {
			b = append(b, a.MessageID[:]...)
		}
		return append(binary.BigEndian.AppendUint64(b, a.Content), said...)
	})
}

// said makes the last part of an answer's event. Before that it writes the texts which that part names.
func (j *journal) said(s *saying) (b []byte) {
	if s == nil || j.w == nil {
		return nil
	}
	for _, text := range s.texts {
		b = binary.AppendUvarint(b, j.text(clipTo(text, maxSaidText)))
	}
	b = binary.AppendVarint(binary.AppendVarint(b, s.created), s.decided-s.created)
	return append(b, clipTo(s.result, maxSaidResult)...)
}

func (j *journal) text(text string) uint64 {
	i, ok := j.texts[text]
	if ok || len(j.texts) == maxTexts {
		return i
	}
	i = uint64(len(j.texts))
	j.texts[text] = i
	j.write(eventText, func(b []byte) []byte { return append(b, text...) })
	return i
}

func bitsOf(list ...bool) (b byte) {
	for i, set := range list {
		if set {
			b |= 1 << i
		}
	}
	return b
}

func (j *journal) applyAnswer(n uint32, a *Answer, queue uint16, sent uint32) {
	j.clock++
	j.facts.at(n).answer(a, queue, j.clock, sent)
	j.tally.Answers[a.Purpose][a.Class]++
	if a.Replayed && a.Purpose == Post {
		j.tally.Replayed++
	}
}

// queue returns the index of a queue's name, and gives a new name the next index.
func (j *journal) queue(name string) uint16 {
	if i, ok := j.index[name]; ok {
		return i
	}
	i := uint16(len(j.names))
	j.names, j.index[name] = append(j.names, name), i
	if len(name) <= maxEvent-16 {
		j.write(eventQueue, func(b []byte) []byte { return append(b, name...) })
	}
	return i
}

// target notes a base URL; its index is the number of those before.
func (j *journal) target(index int, url string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if index != j.urls {
		return
	}
	j.urls++
	j.write(eventTarget, func(b []byte) []byte { return append(b, url[:min(len(url), maxEvent-16)]...) })
}

func (j *journal) gaveUp(n uint32) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.facts.at(n).flags |= leftUndecided
	j.write(eventGaveUp, func(b []byte) []byte { return binary.AppendUvarint(b, uint64(n)) })
}

// observed reports whether all of these flags are set for the transaction.
func (j *journal) observed(n uint32, all flags) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.facts.at(n).flags.has(all)
}

// observe sets flags of the transaction, in memory only.
func (j *journal) observe(n uint32, what flags) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.facts.at(n).flags |= what
}

func (j *journal) end(elapsed time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended, j.elapsed = true, elapsed
	j.write(eventEnd, func(b []byte) []byte { return binary.AppendUvarint(b, uint64(elapsed.Microseconds())) })
}

func (j *journal) suspected(more uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.suspect += more
	j.write(eventSuspect, func(b []byte) []byte { return binary.AppendUvarint(b, more) })
}

// write appends one event. Its length and time come first.
func (j *journal) write(kind byte, fields func(b []byte) []byte) {
	if j.w == nil || j.err != nil {
		return
	}
	now := time.Now()
	j.buf = append(j.buf[:0], 0, kind)
	j.buf = binary.AppendUvarint(j.buf, uint64(max(now.Sub(j.last).Microseconds(), 0)))
	j.buf = fields(j.buf)
	j.buf[0] = byte(len(j.buf) - 1)
	j.last = j.last.Add(max(now.Sub(j.last), 0).Truncate(time.Microsecond))
	_, j.err = j.w.Write(j.buf)
}

// flush writes buffered bytes to the file. The error is the first of all writes.
func (j *journal) flush() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.w == nil {
		return nil
	}
	if j.err == nil {
		j.err = j.w.Flush()
	}
	if j.err != nil {
		return fmt.Errorf("writing the journal: %w", j.err)
	}
	return nil
}

func (j *journal) close() error {
	err := j.flush()
	if j.file == nil {
		return err
	}
	return errors.Join(err, j.file.Close())
}

var errNoJournal = errors.New("this is no journal of txsvc verify")

// readHeader reads the beginning of a journal.
func readHeader(r *bufio.Reader) (*header, error) {
	magic := make([]byte, len(journalMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != journalMagic {
		return nil, errNoJournal
	}
	size, err := binary.ReadUvarint(r)
	if err != nil || size > 64<<20 {
		return nil, errNoJournal
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, errNoJournal
	}
	h := new(header)
	if err := json.Unmarshal(text, h); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoJournal, err)
	}
	return h, nil
}
