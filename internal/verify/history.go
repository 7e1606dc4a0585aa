package verify

import (
	"fmt"
	"strings"
)

// shownPerHistory bounds what is told of one transaction.
const shownPerHistory = 40

// histories gives each finding what was asked and answered about its transaction, out of the journal.
func (e *examination) histories() error {
	r := e.run
	of := make(map[uint32][]string)
	for _, f := range e.report.Findings {
		of[f.n] = []string{}
	}
	if len(of) == 0 {
		return nil
	}
	if err := r.journal.flush(); err != nil {
		return err
	}
	names, targets := []string{""}, []string{}
	_, err := readJournal(r.path, func(*header) error { return nil }, func(v *event) {
		switch v.kind {
		case eventQueue:
			names = append(names, v.name)
		case eventTarget:
			targets = append(targets, v.name)
		case eventSent, eventAnswer, eventGaveUp:
			if lines, ok := of[v.number]; ok && len(lines) < shownPerHistory {
				of[v.number] = append(lines, r.line(v, names, targets))
			}
		}
	})
	for i := range e.report.Findings {
		e.report.Findings[i].History = of[e.report.Findings[i].n]
	}
	return err
}

// line is one event in words.
func (r *Run) line(v *event, names, targets []string) string {
	a := &v.answer
	at := fmt.Sprintf("%10.6f s  ", v.at.Sub(r.header.Started).Seconds())
	to := "?"
	if int(a.Target) < len(targets) {
		to = targets[a.Target]
	}
	switch v.kind {
	case eventSent:
		return at + purposeNames[a.Purpose] + " sent to " + to
	case eventGaveUp:
		return at + "the client gave up"
	}
	said := []string{a.Class.String()}
	if a.Status != 0 {
		said = []string{fmt.Sprint(a.Status), a.Class.String()}
	}
	if a.Class == Committed {
		queue := "?"
		if int(v.queue) < len(names) {
			queue = names[v.queue]
		}
		said = append(said, fmt.Sprintf("delivered=%t replayed=%t queue=%s message_id=%X", a.Delivered, a.Replayed, queue, a.MessageID))
	}
	return at + fmt.Sprintf("%s of %s: %s, after %s", purposeNames[a.Purpose], to, strings.Join(said, " "), a.Latency)
}
