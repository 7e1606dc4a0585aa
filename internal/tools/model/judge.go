package model

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/tools/model/broker"
	"github.com/txsvc/txsvc/internal/tools/model/database"
	"github.com/txsvc/txsvc/internal/tools/model/world"
	"github.com/txsvc/txsvc/internal/txn"
)

// judge holds what happens against the promises, at the moment at which it happens. It is safe for concurrent use.
type judge struct {
	w *world.World

	mu         sync.Mutex
	violations []string
	committed  map[string]*outcome // by id
	byKey      map[string]*outcome // by the UNIQ_KEYs that belonged to the row
	rolledBack map[string]bool     // UNIQ_KEYs
	denied     map[string]string   // requests that were told that nothing was changed, with what they were told
	lines      map[string][]*outcome
}

// outcome is a committed transaction.
type outcome struct {
	id, request, line string
	uniqKey           string
	queue             txn.Queue
	visible, lost     int // copies, and those of them in queues that were removed
	rerouted          bool
	fingerprint       txn.Fingerprint
}

func newJudge(w *world.World) *judge {
	return &judge{
		w: w, committed: make(map[string]*outcome), byKey: make(map[string]*outcome), rolledBack: make(map[string]bool),
		denied: make(map[string]string), lines: make(map[string][]*outcome),
	}
}

// fault notes a promise that did not hold; the caller holds the mutex.
func (j *judge) fault(promise, format string, args ...any) {
	text := promise + ": " + fmt.Sprintf(format, args...)
	j.w.Trace("JUDGE", "%s", text)
	j.violations = append(j.violations, text)
}

// Committed implements database.Watch.
func (j *judge) Committed(r database.Row) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.w.Trace("database", "commits %s with %s, line %d", r.ID, r.MessageID, r.Line)
	request := r.Message.Traceparent
	switch before := j.committed[r.ID]; {
	case before != nil:
		j.fault("once", "%s is committed by request %s, and was by %s", r.ID, request, before.request)
		return
	case j.rolledBack[r.MessageID]:
		j.fault("final", "%s commits with half message %s, which was answered \"rollback\"", r.ID, r.MessageID)
	case j.denied[request] != "":
		j.fault("truthful", "request %s was answered %q, and commits %s", request, j.denied[request], r.ID)
	}
	o := &outcome{id: r.ID, request: request, uniqKey: r.MessageID, queue: r.Route.Queue, fingerprint: r.Fingerprint}
	j.committed[r.ID], j.byKey[r.MessageID] = o, o
	if r.Ordered {
		o.line = r.Topic + " " + r.ShardKey
		j.lines[o.line] = append(j.lines[o.line], o)
	}
}

// Delivered implements database.Watch.
func (j *judge) Delivered(r database.Row) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if o := j.committed[r.ID]; o == nil || o.visible == 0 {
		j.fault("truthful", "the row of %s says \"delivered\", and no consumer sees the message", r.ID)
	}
}

// Rerouted implements database.Watch.
func (j *judge) Rerouted(r database.Row) {
	j.mu.Lock()
	defer j.mu.Unlock()
	o := j.committed[r.ID]
	j.w.Trace("database", "%s goes to %s as %s", r.ID, r.Route.Queue, r.MessageID)
	delete(j.byKey, o.uniqKey)
	o.uniqKey, o.queue, o.rerouted = r.MessageID, r.Route.Queue, true
	j.byKey[o.uniqKey] = o
}

// Ended implements broker.Watch.
func (j *judge) Ended(h txn.Half, m txn.Message, d txn.Decision) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.w.Trace(h.Broker, "executes %s of %s, %s at %d", d, m.TxID, h.UniqKey, h.QueueOffset)
	if d != txn.DecisionRollback {
		return
	}
	j.rolledBack[h.UniqKey] = true
	if o := j.byKey[h.UniqKey]; o != nil && o.visible == 0 {
		j.fault("final", "half message %s of %s is rolled back, and the row that names it is committed and not visible", h.UniqKey, m.TxID)
	}
}

// Visible implements broker.Watch.
func (j *judge) Visible(c broker.Copy) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.w.Trace(c.Queue.Broker, "shows %s as %s in %s", c.TxID, c.UniqKey, c.Queue)
	o := j.committed[c.TxID]
	switch {
	case o == nil:
		j.fault("atomic", "a message of %s is visible, and nothing is committed", c.TxID)
		return
	case c.Removed:
		o.lost++
		return
	case o.uniqKey != c.UniqKey && !o.rerouted:
		j.fault("atomic", "message %s of %s is visible: it is of an attempt that did not commit", c.UniqKey, c.TxID)
	case c.Queue != o.queue && !o.rerouted:
		j.fault("routed", "the message of %s is in queue %s, the row says %s", c.TxID, c.Queue, o.queue)
	}
	o.visible++
	if o.visible > 1 && !o.rerouted {
		j.fault("once", "the message of %s is visible %d times", c.TxID, o.visible)
	}
	for _, before := range j.lines[o.line] {
		if before == o {
			break
		}
		if before.visible == 0 {
			j.fault("ordered", "%s is visible before %s, which was committed first", o.id, before.id)
		}
	}
}

// answered judges an answer. began is what was known when the question was asked.
func (j *judge) answered(r *request, t *txn.Transaction, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.w.Tracing() {
		j.w.Trace("client", "request %s %s: %s", r.number, r.id, answerText(t, err))
	}
	o := j.committed[r.id]
	if err != nil {
		j.refused(r, o, err)
		return
	}
	j.claims(r.id, t, o)
	if t.State == txn.StateCommitted && o != nil && o.request != r.number && !sameFingerprint(o.fingerprint, t.Fingerprint) {
		j.fault("idempotent", "request %s got the answer of another request", r.number)
	}
	if t.State == txn.StateCommitted && string(t.Result) != "" && string(t.Result) != r.payload {
		j.fault("idempotent", "request %s of %s with payload %s got the result %s", r.number, r.id, r.payload, t.Result)
	}
}

// claims checks that an answer says no more than what is so.
func (j *judge) claims(id string, t *txn.Transaction, o *outcome) {
	if t.State == txn.StateCommitted && o == nil {
		j.fault("truthful", "%s is called committed, and is not", id)
		return
	}
	if t.Delivery == txn.DeliveryDelivered && o.visible+o.lost == 0 {
		j.fault("truthful", "%s is called delivered, and no consumer sees it", id)
	}
	if t.State == txn.StateCommitted && t.Route.Queue != o.queue && !o.rerouted {
		j.fault("routed", "%s is said to be in %s, the row says %s", id, t.Route.Queue, o.queue)
	}
}

// refused: what is answered with an error has changed nothing, and never will.
func (j *judge) refused(r *request, o *outcome, err error) {
	e, ok := errors.AsType[*txn.Error](err)
	if !ok {
		j.fault("truthful", "request %s was answered with %v", r.number, err)
		return
	}
	if o != nil && o.request == r.number {
		j.fault("truthful", "request %s was answered %q, and has committed %s", r.number, e.Error(), r.id)
	}
	j.denied[r.number] = e.Error()
	if e.Code == txn.CodeRejected && r.payload != database.Refused {
		j.fault("truthful", "request %s was refused, which nobody did", r.number)
	}
	if e.Code == txn.CodeIdempotencyMismatch && !r.mayDiffer {
		j.fault("idempotent", "request %s of %s: %v, and all requests with this id are the same", r.number, r.id, err)
	}
	if e.Code == txn.CodeInternal {
		j.fault("truthful", "request %s was answered %v", r.number, err)
	}
}

// got judges the answer to a GET. before says whether the id was committed when it was asked.
func (j *judge) got(id string, before bool, t *txn.Transaction, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.w.Tracing() {
		j.w.Trace("client", "GET %s: %s", id, answerText(t, err))
	}
	if err == nil {
		j.claims(id, t, j.committed[id])
	}
	if before && (err != nil && txn.CodeOf(err) == txn.CodeNotFound || err == nil && t.State == txn.StateRolledBack) {
		j.fault("truthful", "GET denies %s, which was committed before", id)
	}
}

func (j *judge) isCommitted(id string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.committed[id] != nil
}

func answerText(t *txn.Transaction, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s, %s, %s, replayed %t", t.State, t.Delivery, t.MessageID, t.Replayed)
}

func sameFingerprint(a, b txn.Fingerprint) bool { return string(a) == string(b) }

// end judges what is there when all has come to rest.
func (j *judge) end(rows []database.Row, undecided int, waited time.Duration) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range rows {
		if r.Delivery == txn.DeliveryPending {
			j.fault("nothing lost", "%s is still pending %v after all faults have ended: %s", r.ID, waited, r.PendingReason)
		}
	}
	for _, id := range sortedKeys(j.committed) {
		if o := j.committed[id]; o.visible == 0 && (!o.rerouted || o.lost == 0) {
			j.fault("nothing lost", "%s is committed, and no consumer sees it", id)
		}
	}
	if undecided > 0 {
		j.fault("nothing lost", "%d half messages are undecided %v after all faults have ended", undecided, waited)
	}
	return j.violations
}
