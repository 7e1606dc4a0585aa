package selector

import (
	"fmt"
	"sync/atomic"
)

// reasons keeps the reason for every queue of a list, so that none is formatted while a message is on its way. It is
// made anew when the number of queues changes, which is rare.
type reasons struct {
	format string // with the number of queues and the index picked
	texts  atomic.Pointer[[]string]
}

// of returns the reason for picking the i-th of n queues.
func (r *reasons) of(n, i int) string {
	if texts := r.texts.Load(); texts != nil && len(*texts) == n {
		return (*texts)[i]
	}
	texts := make([]string, n)
	for j := range texts {
		texts[j] = fmt.Sprintf(r.format, n, j)
	}
	r.texts.Store(&texts)
	return texts[i]
}
