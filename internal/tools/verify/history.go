package verify

import (
	"fmt"
	"strings"
)

// shownPerHistory bounds the lines about one transaction.
const shownPerHistory = 40

// histories adds to each finding, from the journal, the requests and answers about its transaction, and the differences
// between answers, and between answers and row.
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
	names, targets, texts := []string{""}, []string{}, []string{""}
	differ := make(map[uint32]*difference)
	_, err := readJournal(r.path, func(*header) error { return nil }, func(v *event) {
		switch v.kind {
		case eventQueue:
			names = append(names, v.name)
		case eventTarget:
			targets = append(targets, v.name)
		case eventText:
			texts = append(texts, v.name)
		case eventSent, eventAnswer, eventGaveUp:
			if lines, ok := of[v.number]; ok && len(lines) < shownPerHistory {
				of[v.number] = append(lines, r.line(v, names, targets))
			}
			if _, ok := of[v.number]; ok && v.said != nil && v.answer.Purpose != Other {
				if differ[v.number] == nil {
					differ[v.number] = new(difference)
				}
				differ[v.number].add(v.answer.Content, v.said.with(texts))
			}
		}
	})
	for i := range e.report.Findings {
		f := &e.report.Findings[i]
		f.History = of[f.n]
		if d := differ[f.n]; d != nil {
			f.Detail += d.describe(f.Class, e.checker.rows[f.n])
		}
	}
	return err
}

// difference has the first answer about a transaction, and the first answer that differs from it.
type difference struct {
	content      uint64
	first, other *saying
}

func (d *difference) add(content uint64, s *saying) {
	switch {
	case d.first == nil:
		d.content, d.first = content, s
	case d.other == nil && content != d.content:
		d.other = s
	}
}

// describe names the fields that a finding is about, with both values.
func (d *difference) describe(class string, row *saying) string {
	var list []string
	switch {
	case class == FalseDiffers && row != nil:
		list = d.first.differences(row, "an answer", "the row")
	case class == FalseContradiction && d.other != nil:
		if list = d.first.differences(d.other, "one answer", "another"); len(list) == 0 {
			list = []string{fmt.Sprintf("a value, beyond its first %d bytes", maxSaidResult)}
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "; " + strings.Join(list, "; ")
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
