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
)

// marks tell how far a broker's index has come. A mark is a half message that is rolled back at once: nobody sees it, and it
// is in the index like all others. They are put there only while somebody waits for evidence. They belong to the evidence,
// and to its mutex.
type marks struct {
	wanted time.Time // when somebody asked last
	topic  string    // of what was asked about: one that the broker knows
	open   []mark    // those that were not found yet, in their order
	found  time.Time // when the last one that was found had not been sent yet
	blind  bool      // none can be put there, or looked for
}

type mark struct {
	before time.Time // it was sent later
	half   txn.Half
}

func (m *marks) isWanted(now time.Time) bool {
	return !m.wanted.IsZero() && now.Sub(m.wanted) < wantedFor
}

// passed says whether all that was in the broker's log at the moment is in its index.
func (m *marks) passed(at, now time.Time) bool {
	return !m.found.Before(at) || m.blind && !at.Add(blindLag).After(now)
}

// lag is how far behind what is known of the broker may be.
func (m *marks) lag() time.Duration {
	if m.blind {
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
			if r.evidence.goBlind(broker) {
				r.log.WarnContext(ctx, "it cannot be found out how far the broker's index is: what may have been sent waits longer",
					"broker", broker, "waits", blindLag.String(), "error", err)
			}
		case err != nil:
			r.log.DebugContext(ctx, "following the broker's index", "broker", broker, "error", err)
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
	r.evidence.addMark(broker, mark{before, half})
	r.rollback(ctx, half)
	return r.findMarks(ctx, broker)
}

func (r *Resolver) findMarks(ctx context.Context, broker string) error {
	for _, m := range r.evidence.openMarks(broker) {
		ok, err := r.broker.Indexed(ctx, m.half)
		if err != nil {
			return err
		}
		if ok {
			r.evidence.foundMark(broker, m)
		}
	}
	return nil
}

// wantsMark says whether another mark is to be put to the broker, and in which topic.
func (e *evidence) wantsMark(broker string, now time.Time) (topic string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.marksOf(broker)
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
	m.blind = false
	if found.before.After(m.found) {
		m.found = found.before
	}
}

// goBlind notes that no mark can be put to the broker or looked for. It is true the first time.
func (e *evidence) goBlind(broker string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.marksOf(broker)
	first := !m.blind
	m.blind = true
	return first
}
