package stacktest

import (
	"slices"
	"testing"
)

// Of more stacks than may wait, the one that has waited longest is to be ended, and only that one.
func TestSurplus(t *testing.T) {
	defer func(free []lendable) { lent.free = free }(lent.free)
	lent.free = nil
	var ended []string
	for _, options := range []string{"a", "b", "c", "d", "e"} {
		if l := giveBack(lendable{options: options}); l.options != "" {
			ended = append(ended, l.options)
		}
	}
	var waiting []string
	for _, l := range lent.free {
		waiting = append(waiting, l.options)
	}
	if !slices.Equal(ended, []string{"a", "b"}) || !slices.Equal(waiting, []string{"c", "d", "e"}) {
		t.Errorf("got %v ended and %v waiting, want a, b and c, d, e", ended, waiting)
	}
}
