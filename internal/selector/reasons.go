package selector

import (
	"fmt"
	"maps"
	"sync/atomic"
)

// reasons has the reason for every queue of a list, so that a message does not wait for formatting.
type reasons struct {
	format string // with the number of queues and the index picked
	texts  atomic.Pointer[map[int][]string]
}

// of returns the reason for picking the i-th of n queues.
func (r *reasons) of(n, i int) string {
	known := r.texts.Load()
	if known == nil {
		known = new(map[int][]string)
	}
	if texts := (*known)[n]; texts != nil {
		return texts[i]
	}
	texts := make([]string, n)
	for j := range texts {
		texts[j] = fmt.Sprintf(r.format, n, j)
	}
	next := map[int][]string{n: texts}
	if len(*known) < keptLists {
		maps.Copy(next, *known)
	}
	r.texts.Store(&next)
	return texts[i]
}

// maxJoined bounds the texts of a joined, because an own selector may give every message another reason.
const maxJoined = 1024

// joined remembers texts with the same prefix, so that a message does not wait for concatenation.
type joined struct {
	prefix string
	texts  atomic.Pointer[map[string]string] // from what is behind the prefix; never changed, but replaced
}

// with returns the prefix and the rest.
func (j *joined) with(rest string) string {
	texts := j.texts.Load()
	if texts == nil {
		texts = new(map[string]string)
	}
	if text, ok := (*texts)[rest]; ok {
		return text
	}
	text := j.prefix + rest
	if len(*texts) < maxJoined {
		next := make(map[string]string, len(*texts)+1)
		maps.Copy(next, *texts)
		next[rest] = text
		j.texts.Store(&next)
	}
	return text
}
