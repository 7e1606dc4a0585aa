package database

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/tools/model/world"
	"github.com/txsvc/txsvc/internal/txn"
)

// Config is how a database is set up.
type Config struct {
	Timing txn.Timing
	Skew   time.Duration // of its clock
	Faults float64       // the share of statements that something happens to
	Local  time.Duration // how long a local transaction takes at most, without its waiting for others
	Slow   float64       // the share of local transactions that take up to their timeout and longer
	Old    time.Duration // how long a process may be there that does not know tracked rows
}

// Watch is told what happens, at the moment at which it does. Delivered is for rows that say so by themselves, and for
// tracked ones that the watermark has passed.
type Watch interface {
	Committed(r Row)
	Delivered(r Row)
	Rerouted(r Row)
}

// Broken says what the database does wrong, so that tests see whether somebody notices.
type Broken struct {
	Fence      bool // a fenced attempt may take an abandoned row's place
	Lease      bool // rows are claimed that somebody holds
	FirstLease bool // the row of a request has no lease
	Gaps       bool // a line is claimed from behind what cannot be claimed
	Ahead      bool // a row of a line is claimed although others are before it
	LineLock   bool // places in line are taken without the line's lock
	Adopt      bool // rows are adopted while their first lease lasts, of processes that are heard of
	Ceiling    bool // rows are tracked beyond the ceiling
	Mark       bool // rows are tracked that the watermark has passed
}

// Row is a row of the table. A tracked one says that its message is pending; the watermark of its process may say more.
type Row struct {
	txn.Transaction
	Tracked  bool
	Message  txn.Message
	Half     txn.Half // of the attempt; NoHalf with Outbox
	Fenced   []string
	Outbox   bool
	Line     int64
	Epoch    int64
	Attempts int
	Lease    time.Time // until then, on the database's clock; zero: none. Of a tracked row: that of who committed it
}

// Database is the server. It is safe for concurrent use.
type Database struct {
	w      *world.World
	config Config
	watch  Watch
	broken Broken

	mu        sync.Mutex
	rows      map[string]*Row
	place     int64
	era       *era
	down      bool
	producers map[string]producer // by prefix
	listeners map[*Store]func()
	unflushed []func() // undo what no later COMMIT has forced to the disk
}

// era is the time between two crashes: locks do not outlive it.
type era struct {
	over  chan struct{}
	keys  map[string]*lock // by id: open transactions that have written the row
	lines map[string]*lock // by topic and shard key
}

// lock is held; those who wait come one after the other.
type lock struct{ waiting []chan struct{} }

func newEra() *era {
	return &era{over: make(chan struct{}), keys: make(map[string]*lock), lines: make(map[string]*lock)}
}

// New returns an empty database.
func New(w *world.World, config Config, watch Watch) *Database {
	d := &Database{
		w: w, config: config, watch: watch, rows: make(map[string]*Row), era: newEra(),
		producers: make(map[string]producer), listeners: make(map[*Store]func()),
	}
	d.producers["old"] = producer{format: 1, seen: d.now().Add(config.Old - oldSeen)}
	return d
}

var (
	errCrashed = errors.New("the database crashed")
	errTimeout = errors.New("it took too long")
	errTaken   = errors.New("the id has a row")
	errFenced  = errors.New("the id's row cannot be replaced")
)

// Break returns what the database does wrong, to be changed before it is used.
func (d *Database) Break() *Broken { return &d.broken }

// now is the database's clock; clock_timestamp.
func (d *Database) now() time.Time { return time.Now().Add(d.config.Skew) }

// take waits for a lock.
func (d *Database) take(e *era, locks map[string]*lock, key string, wait time.Duration) error {
	d.mu.Lock()
	select {
	case <-e.over:
		d.mu.Unlock()
		return errCrashed
	default:
	}
	held := locks[key]
	if held == nil {
		locks[key] = &lock{}
		d.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	held.waiting = append(held.waiting, turn)
	d.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-turn:
		return nil
	case <-e.over:
		return errCrashed
	case <-timer.C:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(held.waiting, turn)
	if i < 0 {
		return nil
	}
	held.waiting = slices.Delete(held.waiting, i, i+1)
	return errTimeout
}

// release hands a lock on; the caller holds the mutex.
func release(locks map[string]*lock, key string) {
	held := locks[key]
	if len(held.waiting) == 0 {
		delete(locks, key)
		return
	}
	close(held.waiting[0])
	held.waiting = held.waiting[1:]
}

// Crash kills the server: what is not committed is rolled back, and delivered marks that were not flushed are lost.
// It is false when it was down.
func (d *Database) Crash() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		return false
	}
	d.down = true
	close(d.era.over)
	for _, undo := range slices.Backward(d.unflushed) {
		undo()
	}
	d.unflushed = nil
	return true
}

// Restart starts it again.
func (d *Database) Restart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down, d.era = false, newEra()
	d.w.Trace("database", "starts again")
}

// Rows returns all rows, by id, with what is known of their messages.
func (d *Database) Rows() []Row {
	d.mu.Lock()
	defer d.mu.Unlock()
	rows := make([]Row, 0, len(d.rows))
	for _, r := range d.sorted() {
		row := *r
		row.Transaction = d.read(r)
		rows = append(rows, row)
	}
	return rows
}

// sorted returns the rows by id; the caller holds the mutex.
func (d *Database) sorted() []*Row {
	rows := make([]*Row, 0, len(d.rows))
	for _, r := range d.rows {
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b *Row) int { return strings.Compare(a.ID, b.ID) })
	return rows
}

// pending says that the row says by itself that its message is pending; a tracked one is held, too.
func (r *Row) pending() bool { return r.held() && !r.Tracked }

func (r *Row) held() bool { return r.Delivery == txn.DeliveryPending }

// due says that a pending row is to be delivered; the caller holds the mutex.
func (d *Database) due(r *Row) bool { return r.pending() && d.free(r) }

// free says that nobody holds the row; the caller holds the mutex.
func (d *Database) free(r *Row) bool {
	return r.held() && !r.Parked && (d.broken.Lease || !r.Lease.After(d.now()))
}

// ahead returns the pending rows before one of its line.
func (d *Database) ahead(r *Row) (before []*Row) {
	for _, other := range d.rows {
		if other.Ordered && other.pending() && other.Topic == r.Topic && other.ShardKey == r.ShardKey && other.Line < r.Line {
			before = append(before, other)
		}
	}
	slices.SortFunc(before, func(a, b *Row) int { return int(a.Line - b.Line) })
	return before
}

// forced notes that what was written before is on the disk; the caller holds the mutex.
func (d *Database) forced() { d.unflushed = nil }
