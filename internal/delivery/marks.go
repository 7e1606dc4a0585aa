package delivery

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

const (
	// markEvery is how long a mark is looked for before another one is put behind it: it may be lost.
	markEvery = 5 * time.Second
	// marksKept bounds how many are looked for at once.
	marksKept = 64
	// indexPatience is how long a mark may be in its queue and not in the index.
	indexPatience = 5 * time.Second
	// stuckAfter is how long rows may wait for evidence until that is told.
	stuckAfter = time.Minute
	// lookAgainEvery is how often an index that did not tell is looked at when nobody asks.
	lookAgainEvery = 20 * time.Second
)

// marks tell how far a broker's index has come. A mark is a half message that is rolled back at once: nobody sees it, and it
// is in the index like all others. They are put there only while somebody waits for evidence, and, where the index does not
// tell, for some seconds in each half minute, so that it is noticed when it does. They belong to the evidence, and to its mutex.
type marks struct {
	wanted  time.Time // until a moment after this the index is followed
	asked   time.Time // when somebody asked last
	waiting time.Time // since when all who asked were told to wait; zero: the last was not
	topic   string    // of what was asked about: one that the broker knows
	open    []mark    // those that are not in the index yet, in their order
	found   time.Time // when the last one that is in the index had not been sent yet
	queued  time.Time // the same of the last one that is in its queue
	source  source
}

// source is what tells that a message is not visible.
type source int

const (
	// byIndex: the broker's index, as far as marks have been found in it.
	byIndex source = iota
	// byQueue: the index does not know what is in the queues, so they are read, as far as marks have been found in theirs.
	byQueue
	// byTime: no mark can be put there or looked for. Queues are read when blindLag has passed.
	byTime
)

type mark struct {
	before time.Time // it was sent later
	half   txn.Half
	queued time.Time // when it was found in its queue; zero: it was not
}

func (m *marks) isWanted(now time.Time) bool {
	return !m.wanted.IsZero() && now.Sub(m.wanted) < wantedFor
}

// want notes that somebody asks.
func (m *marks) want(now time.Time) {
	if now.Sub(m.asked) > stuckAfter {
		m.waiting = time.Time{}
	}
	m.asked, m.wanted = now, now
}

// isStuck says that those who ask have been told to wait for longer than it can take when all goes on.
func (m *marks) isStuck(now time.Time) bool {
	return !m.waiting.IsZero() && now.Sub(m.waiting) > stuckAfter && now.Sub(m.asked) <= stuckAfter
}

// passed says whether all that was in the broker's log at the moment can be found by now.
func (m *marks) passed(at, now time.Time) bool {
	switch m.source {
	case byQueue:
		return !m.queued.Before(at)
	case byTime:
		return !at.Add(blindLag).After(now)
	default:
		return !m.found.Before(at)
	}
}

// lag is how far behind what is known of the broker may be.
func (m *marks) lag() time.Duration {
	if m.source == byTime {
		return readyLag + blindLag
	}
	return readyLag
}

// followIndexes puts marks to the brokers about which somebody asks, and looks for them.
func (r *Resolver) followIndexes(ctx context.Context) {
	r.eachBroker(ctx, callTimeout, func(ctx context.Context, broker string) {
		err := r.followIndex(ctx, broker)
		switch {
		case errors.Is(err, txn.ErrNoQueue), errors.Is(err, txn.ErrNotTold):
			if r.evidence.setSource(broker, byTime) {
				r.log.WarnContext(ctx, "it cannot be found out how far the broker's index is: what may have been sent waits longer",
					"broker", broker, "waits", blindLag.String(), "error", err)
			}
		case err != nil:
			r.log.DebugContext(ctx, "following the broker's index", "broker", broker, "error", err)
		case r.evidence.indexIsSilent(broker, time.Now()) && r.evidence.setSource(broker, byQueue):
			r.log.WarnContext(ctx, "the broker's index does not know what is in its queues: they are read instead", "broker", broker)
		}
	})
}

func (r *Resolver) followIndex(ctx context.Context, broker string) error {
	if err := r.findMarks(ctx, broker); err != nil {
		return err
	}
	topic, ok := r.evidence.wantsMark(broker, time.Now())
	if !ok {
		return nil
	}
	before := time.Now()
	half, err := r.broker.SendHalf(ctx, txn.Message{
		Topic: topic, Queue: txn.Queue{Broker: broker}, Kind: txn.MarkKind, UniqKey: r.broker.NewUniqKey(), Body: []byte("{}"),
	})
	if err != nil {
		return err
	}
	r.evidence.addMark(broker, mark{before: before, half: half})
	r.rollback(ctx, half)
	return r.findMarks(ctx, broker)
}

// findMarks looks for marks that are not in the index yet, and notes how far the first of them that is not has come.
func (r *Resolver) findMarks(ctx context.Context, broker string) error {
	for _, m := range r.evidence.openMarks(broker) {
		reach, err := r.broker.Reach(ctx, m.half)
		if err != nil {
			return err
		}
		switch reach {
		case txn.ReachIndex:
			r.evidence.foundMark(broker, m)
		case txn.ReachQueue:
			r.evidence.queuedMark(broker, m, time.Now())
		case txn.ReachNothing:
		}
	}
	return nil
}

// wantsMark says whether another mark is to be put to the broker, and in which topic.
func (e *evidence) wantsMark(broker string, now time.Time) (topic string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.marksOf(broker)
	if m.source != byIndex && now.Sub(m.wanted) > lookAgainEvery {
		m.wanted = now
	}
	last := len(m.open) - 1
	return m.topic, m.isWanted(now) && (last < 0 || now.Sub(m.open[last].before) >= markEvery)
}

func (e *evidence) addMark(broker string, another mark) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.marksOf(broker)
	if len(m.open) == marksKept {
		m.open = slices.Delete(m.open, 1, 2) // the oldest is the next to be found
	}
	m.open = append(m.open, another)
}

// openMarks returns the marks to look for: none of a broker about which nobody asks any more.
func (e *evidence) openMarks(broker string) []mark {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.marksOf(broker)
	if !m.isWanted(time.Now()) {
		m.open = nil
	}
	return slices.Clone(m.open)
}

// foundMark notes that a mark is in the index, and with it all that were put there before.
func (e *evidence) foundMark(broker string, found mark) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.marksOf(broker)
	m.open = slices.DeleteFunc(m.open, func(other mark) bool { return !other.before.After(found.before) })
	m.source = byIndex
	if found.before.After(m.found) {
		m.found = found.before
	}
}

// queuedMark notes that a mark is in its queue, and not in the index.
func (e *evidence) queuedMark(broker string, found mark, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.marksOf(broker)
	if found.before.After(m.queued) {
		m.queued = found.before
	}
	for i := range m.open {
		if m.open[i].half == found.half && m.open[i].queued.IsZero() {
			m.open[i].queued = now
		}
	}
}

// indexIsSilent says that a mark has been in its queue for so long without being in the index that the index is off, or
// broken: one thread of the broker writes both.
func (e *evidence) indexIsSilent(broker string, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.marksOf(broker)
	return len(m.open) > 0 && !m.open[0].queued.IsZero() && now.Sub(m.open[0].queued) >= indexPatience
}

// setSource notes what tells about the broker from now on. It is true when that is another source than before.
func (e *evidence) setSource(broker string, s source) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.marksOf(broker)
	changed := m.source != s
	m.source = s
	return changed
}
