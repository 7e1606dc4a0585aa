package selector

import (
	"slices"
	"sync/atomic"

	"github.com/txsvc/txsvc/internal/txn"
)

// keptLists is the number of lists of queues that are remembered. Two are in use while a topic's queues change: the
// live and the accepted queues.
const keptLists = 4

// recent remembers the results for the last few lists of queues. No list is empty.
type recent[T any] struct {
	lists atomic.Pointer[[]listed[T]] // the newest first; never changed, but replaced
}

type listed[T any] struct {
	list  []txn.Queue
	value T
}

// of returns the result of work for the list. It calls work once per list, or more often when several goroutines come
// at once.
func (r *recent[T]) of(list []txn.Queue, work func([]txn.Queue) T) T {
	known := r.lists.Load()
	if known == nil {
		known = new([]listed[T])
	}
	for i := range *known {
		if entry := &(*known)[i]; same(entry.list, list) {
			return entry.value
		}
	}
	next := listed[T]{list: list}
	older := slices.Clone(*known)
	if i := slices.IndexFunc(older, func(e listed[T]) bool { return slices.Equal(e.list, list) }); i >= 0 {
		next.value = older[i].value
		older = slices.Delete(older, i, i+1)
	} else {
		next.value = work(list)
	}
	lists := append([]listed[T]{next}, older[:min(len(older), keptLists-1)]...)
	r.lists.Store(&lists)
	return next.value
}

// same reports whether two lists are the same slice.
func same(a, b []txn.Queue) bool { return len(a) == len(b) && &a[0] == &b[0] }
