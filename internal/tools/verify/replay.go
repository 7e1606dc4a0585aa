package verify

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// event is one event of a journal's file.
type event struct {
	kind   byte
	at     time.Time
	number uint32
	answer Answer
	clocks uint32 // of an answer: since its request was sent
	queue  uint16
	name   string
	said   *heard
	count  uint64
}

// heard is a saying in the form of an answer's event.
type heard struct {
	texts            [sayTexts]uint64
	created, decided int64
	result           string
}

// with fills in the texts, which earlier events have.
func (h *heard) with(texts []string) *saying {
	s := &saying{created: h.created, decided: h.decided, result: h.result}
	for i, text := range h.texts {
		if text < uint64(len(texts)) {
			s.texts[i] = texts[text]
		}
	}
	return s
}

// readJournal reads a file from its beginning and calls handle for each event. It returns false when the file ends within
// an event.
func readJournal(path string, begin func(*header) error, handle func(*event)) (whole bool, err error) {
	file, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return false, fmt.Errorf("opening the journal: %w", err)
	}
	defer file.Close()
	r := bufio.NewReaderSize(file, 256<<10)
	h, err := readHeader(r)
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	if err := begin(h); err != nil {
		return false, err
	}
	e, at, buf := new(event), h.Started, make([]byte, maxEvent)
	for {
		size, err := r.ReadByte()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err == nil {
			_, err = io.ReadFull(r, buf[:size])
		}
		if err != nil {
			return false, nil //nolint:nilerr // cut short: the result says so
		}
		if !e.decode(buf[:size], &at) {
			return false, fmt.Errorf("%s: an event is malformed", path)
		}
		handle(e)
	}
}

// fields takes values off the front of an event.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) number() uint64 {
	v, n := binary.Uvarint(f.b)
	if n <= 0 {
		f.bad = true
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) signed() int64 {
	v, n := binary.Varint(f.b)
	if n <= 0 {
		f.bad = true
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) take(n int) []byte {
	if n > len(f.b) {
		f.bad = true
		return make([]byte, n)
	}
	taken := f.b[:n]
	f.b = f.b[n:]
	return taken
}

func (e *event) decode(b []byte, at *time.Time) bool {
	f := fields{b: b}
	*e = event{kind: f.take(1)[0]}
	*at = at.Add(time.Duration(f.number()) * time.Microsecond)
	e.at = *at
	switch e.kind {
	case eventSent:
		e.number = uint32(f.number())
		b := f.take(2)
		e.answer.Purpose, e.answer.Target = Purpose(b[0]), b[1]
	case eventAnswer:
		e.decodeAnswer(&f)
	case eventQueue, eventTarget, eventText:
		e.name, f.b = string(f.b), nil
	case eventGaveUp:
		e.number = uint32(f.number())
	case eventEnd, eventSuspect:
		e.count = f.number()
	default:
		return false
	}
	return !f.bad && int(e.answer.Purpose) < len(purposes) && int(e.answer.Class) < classes && e.number <= maxCount
}

func (e *event) decodeAnswer(f *fields) {
	e.number, e.clocks = uint32(f.number()), uint32(f.number())
	b := f.take(6)
	e.answer = Answer{
		Class: Class(b[0]), Purpose: Purpose(b[1]), Status: binary.BigEndian.Uint16(b[2:]),
		Replayed: b[4]&1 != 0, Delivered: b[4]&2 != 0, Target: b[5],
	}
	e.answer.Latency = time.Duration(f.number()) * time.Microsecond
	if e.queue = uint16(f.number()); e.queue != 0 {
		copy(e.answer.MessageID[:], f.take(16))
	}
	e.answer.Content = binary.BigEndian.Uint64(f.take(8))
	if len(f.b) == 0 {
		return
	}
	e.said = new(heard)
	for i := range e.said.texts {
		e.said.texts[i] = f.number()
	}
	e.said.created = f.signed()
	e.said.decided = e.said.created + f.signed()
	e.said.result, f.b = string(f.b), nil
}

// apply changes the journal's memory as writing the event did.
func (j *journal) apply(e *event) {
	switch e.kind {
	case eventSent:
		j.applySent(e.number, e.answer.Purpose)
	case eventAnswer:
		j.applyAnswer(e.number, &e.answer, e.queue, j.clock+1-e.clocks)
	case eventQueue:
		j.queue(e.name)
	case eventTarget:
		j.urls++
	case eventGaveUp:
		j.facts.at(e.number).flags |= leftUndecided
	case eventEnd:
		j.ended, j.elapsed = true, time.Duration(e.count)*time.Microsecond
	case eventSuspect:
		j.suspect += e.count
	}
}
