package evidence

import (
	"slices"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

const (
	// indexProbesKept bounds how many index probes are looked for at once.
	indexProbesKept = 64
	// lookAgainEvery is the time between two looks at an index that failed to answer, when nobody asks.
	lookAgainEvery = 20 * time.Second
)

// index is how far a broker's message index has come, as index probes show it. An index probe is a half message that is
// rolled back at once: nobody sees it, and it is in the index like all others. Probes are put there only while somebody waits
// for evidence; and, where the index does not tell, for some seconds in each half minute, to notice when it does again.
type index struct {
	timing  *txn.Timing
	wanted  time.Time // the index is followed for IndexWanted after this
	asked   time.Time // when somebody asked last
	waiting time.Time // since when all who asked had to wait; zero: the last had not
	topic   string    // of what was asked about: one that the broker knows
	open    []indexProbe
	found   time.Time // before the last probe that is in the index was sent
	queued  time.Time // before the last probe that is in its queue was sent
	source  source
}

// source is what shows that a message is not visible.
type source int

const (
	// byIndex: the broker's index, as far as index probes have been found in it.
	byIndex source = iota
	// byQueue: the queues, as far as index probes have been found in theirs, because the index does not know what is in them.
	byQueue
	// byTime: the queues, when IndexBlind has passed, because no index probe can be sent or looked for.
	byTime
)

// indexProbe is one that is not in the index yet.
type indexProbe struct {
	before time.Time // it was sent later
	half   txn.Half
	queued time.Time // when it was found in its queue; zero: it was not
}

func (x *index) isWanted(now time.Time) bool {
	return !x.wanted.IsZero() && now.Sub(x.wanted) < x.timing.IndexWanted
}

// want notes that somebody asks.
func (x *index) want(now time.Time) {
	if now.Sub(x.asked) > x.timing.EvidenceStuck {
		x.waiting = time.Time{}
	}
	x.asked, x.wanted = now, now
}

// isStuck says that those who ask have had to wait for longer than they should while evidence comes.
func (x *index) isStuck(now time.Time) bool {
	return !x.waiting.IsZero() && now.Sub(x.waiting) > x.timing.EvidenceStuck && now.Sub(x.asked) <= x.timing.EvidenceStuck
}

// passed says whether all that was in the broker's log at the given time can be found by now.
func (x *index) passed(at, now time.Time) bool {
	switch x.source {
	case byQueue:
		return !x.queued.Before(at)
	case byTime:
		return !at.Add(x.timing.IndexBlind).After(now)
	default:
		return !x.found.Before(at)
	}
}

// lag is how far behind the broker's evidence may be while its rows are claimed.
func (x *index) lag() time.Duration {
	if x.source == byTime {
		return x.timing.EvidenceLag + x.timing.IndexBlind
	}
	return x.timing.EvidenceLag
}

// wantsIndexProbe says whether another index probe is to be sent to the broker, and to which topic.
func (e *Evidence) wantsIndexProbe(name string) (topic string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x, now := &e.of(name).index, time.Now()
	if x.source != byIndex && now.Sub(x.wanted) > lookAgainEvery {
		x.wanted = now
	}
	last := len(x.open) - 1
	return x.topic, x.isWanted(now) && (last < 0 || now.Sub(x.open[last].before) >= x.timing.IndexProbeEvery)
}

func (e *Evidence) addIndexProbe(name string, another indexProbe) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := &e.of(name).index
	if len(x.open) == indexProbesKept {
		x.open = slices.Delete(x.open, 1, 2) // the oldest is the next to be found
	}
	x.open = append(x.open, another)
}

// openIndexProbes returns the index probes to look for: none of a broker about which nobody asks any more.
func (e *Evidence) openIndexProbes(name string) []indexProbe {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := &e.of(name).index
	if !x.isWanted(time.Now()) {
		x.open = nil
	}
	return slices.Clone(x.open)
}

// foundIndexProbe notes that an index probe is in the index, and with it all that are before it in the log.
func (e *Evidence) foundIndexProbe(name string, found indexProbe) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := &e.of(name).index
	x.open = slices.DeleteFunc(x.open, func(other indexProbe) bool { return !other.before.After(found.before) })
	x.source = byIndex
	if found.before.After(x.found) {
		x.found = found.before
	}
}

// queuedIndexProbe notes that an index probe is in its queue, and not in the index.
func (e *Evidence) queuedIndexProbe(name string, found indexProbe) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := &e.of(name).index
	if found.before.After(x.queued) {
		x.queued = found.before
	}
	for i := range x.open {
		if x.open[i].half == found.half && x.open[i].queued.IsZero() {
			x.open[i].queued = time.Now()
		}
	}
}

// indexIsSilent says that an index probe has been in its queue for so long without being in the index that the index is off
// or broken, because one thread of the broker writes both.
func (e *Evidence) indexIsSilent(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := &e.of(name).index
	// Not the oldest alone: the broker may have lost that one.
	for _, p := range x.open {
		if !p.queued.IsZero() && time.Since(p.queued) >= x.timing.IndexPatience {
			return true
		}
	}
	return false
}

// setSource notes the source for the broker from now on. It is true when that is another one than before.
func (e *Evidence) setSource(name string, s source) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := &e.of(name).index
	changed := x.source != s
	x.source = s
	return changed
}
