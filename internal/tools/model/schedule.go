package model

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/tools/model/broker"
	"github.com/txsvc/txsvc/internal/tools/model/database"
	"github.com/txsvc/txsvc/internal/tools/model/world"
	"github.com/txsvc/txsvc/internal/txn"
)

// Result is what came of one schedule.
type Result struct {
	Violations []string // promises that did not hold
	Trace      []string
	Committed  int           // transactions
	Took       time.Duration // of the model's time
}

// mutant makes the parts of a process, one of which is broken.
type mutant func(m *model, store *database.Store, mq *broker.Client) parts

// model is one schedule.
type model struct {
	w        *world.World
	roll     *world.Roll
	timing   txn.Timing
	kinds    []*txn.Kind
	cluster  *broker.Cluster
	database *database.Database
	judge    *judge
	mutant   mutant
	started  int
	senders  int

	mu        sync.Mutex
	processes []*process // by place; a killed one is replaced
	requests  sync.WaitGroup
	begun     int
}

const topic = "orders"

// timing is shorter than that of the service, in its proportions, and looks less often, so that a schedule takes less time.
func timing() txn.Timing {
	t := txn.DefaultTiming()
	t.WriteWithin, t.ArriveWithin, t.BrokerQueue = 700*time.Millisecond, time.Second, time.Second
	t.BusyPause = 1 // nearly none: it is the one thing that the service leaves to chance of its own
	t.PollEvery = 500 * time.Millisecond
	t.IndexProbeEvery, t.IndexPatience = 2*time.Second, 2*time.Second
	return t
}

// kinds are the sorts of transactions: with half messages and without, in order and not, in one round trip and in steps.
func kinds() []*txn.Kind {
	destination := txn.Destination{Topic: topic, Selector: byKey{}}
	kind := func(name string, with func(k *txn.Kind)) *txn.Kind {
		k := &txn.Kind{Name: name, Destination: destination, Timeout: 2 * time.Second, Local: "sql"}
		with(k)
		return k
	}
	return []*txn.Kind{
		kind("plain", func(*txn.Kind) {}),
		kind("steps", func(k *txn.Kind) { k.Local = database.Steps }),
		kind("ordered", func(k *txn.Kind) { k.Ordered = true }),
		kind("outbox", func(k *txn.Kind) { k.Via = txn.ViaOutbox }),
		kind("ordered outbox", func(k *txn.Kind) { k.Via, k.Ordered = txn.ViaOutbox, true }),
		kind("fallback", func(k *txn.Kind) { k.Fallback, k.Ordered = txn.FallbackOutbox, true }),
	}
}

// explore runs the schedule of a seed. It is called inside of a synctest bubble.
func explore(seed uint64, traced bool, mutated mutant) Result {
	w := world.New(seed, traced)
	roll := w.Roll("schedule", "", "")
	m := &model{w: w, roll: roll, timing: timing(), kinds: kinds(), judge: newJudge(w), mutant: mutated}
	if roll.Chance(.1) {
		m.timing = txn.DefaultTiming()
		m.timing.BusyPause = 1
	}
	faults := []float64{0, .02, .1, .3}[roll.Below(4)]
	brokers := []string{"a", "b"}[:1+roll.Below(2)]
	m.cluster = broker.New(w, broker.Config{
		Timing: m.timing, Brokers: brokers, Queues: 2, CheckFrom: roll.Between(500*time.Millisecond, 3*time.Second), CheckEach: roll.Between(300*time.Millisecond, 1500*time.Millisecond),
		CheckMax: 1 + roll.Below(6), OpBatch: roll.Within(2 * time.Second), IndexLag: roll.Within(50 * time.Millisecond),
		NoIndex: roll.Chance(.03), Faults: faults,
	}, m.judge)
	m.database = database.New(w, database.Config{
		Timing: m.timing, Skew: roll.Between(-5*time.Minute, 5*time.Minute), Faults: faults / 2, Local: roll.Within(30 * time.Millisecond),
		Slow: []float64{0, .1, .3}[roll.Below(3)], Old: max(0, roll.Between(-4*time.Second, time.Second)),
	}, m.judge)
	for range 1 + roll.Below(3) {
		m.processes = append(m.processes, m.start())
	}
	m.ask()
	m.breakThings(brokers)
	return m.rest()
}

// request is one POST.
type request struct {
	number    string
	sender    string // the client that sends it, again and again
	id        string
	kind      string
	key       string
	payload   string
	mayDiffer bool // another request has the same id and another content
}

// ask lets clients send their requests.
func (m *model) ask() {
	keys := 1 + m.roll.Below(2)
	kind := m.kinds[m.roll.Below(len(m.kinds))]
	mixed := m.roll.Chance(.3)
	for i := range 1 + m.roll.Below(5) {
		id := "t" + strconv.Itoa(i)
		if mixed {
			kind = m.kinds[m.roll.Below(len(m.kinds))]
		}
		r := request{id: id, kind: kind.Name, key: "k" + strconv.Itoa(m.roll.Below(keys)), payload: strconv.Itoa(i)}
		if m.roll.Chance(.1) {
			r.payload = database.Refused
		}
		twice, differs := m.roll.Chance(.4), m.roll.Chance(.2)
		r.mayDiffer = twice && differs
		at := m.roll.Within(500 * time.Millisecond)
		m.send(r, at)
		if twice {
			again := r
			if differs {
				again.payload = strconv.Itoa(100 + i)
			}
			m.send(again, at+m.roll.Within([]time.Duration{10 * time.Millisecond, time.Second, 10 * time.Second}[m.roll.Below(3)]))
		}
		if m.roll.Chance(.3) {
			m.get(id, at+m.roll.Within(2*time.Second))
		}
	}
}

// send lets a client send a request, and repeat it while the answer is that it may.
func (m *model) send(r request, at time.Duration) {
	m.senders++
	r.sender = "client " + strconv.Itoa(m.senders)
	patience := m.roll.Below(3)
	gone := time.Duration(0)
	if m.roll.Chance(.1) {
		gone = m.roll.Within(3 * time.Second)
	}
	m.requests.Add(1)
	m.w.After(at, func() {
		defer m.requests.Done()
		for try := 0; ; try++ {
			again := m.try(r, gone)
			if !again || try >= patience {
				return
			}
			time.Sleep(m.w.Roll(r.sender, "again", "").Within(3 * time.Second))
		}
	})
}

// try sends a request once to some process, and says whether it is worth a repetition.
func (m *model) try(r request, gone time.Duration) (again bool) {
	m.mu.Lock()
	m.begun++
	r.number = strconv.Itoa(m.begun)
	m.mu.Unlock()
	p := m.some(r.sender)
	ctx := context.Background()
	if gone > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, gone)
		defer cancel()
	}
	m.w.Trace("client", "request %s: %s %s, key %s, payload %s to %s", r.number, r.kind, r.id, r.key, r.payload, p.life.Name)
	type answer struct {
		t   *txn.Transaction
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		t, err := p.service.Submit(context.WithValue(ctx, submitting{}, true), txn.Request{
			Kind: r.kind, ID: r.id, ShardKey: r.key, Payload: []byte(r.payload), Traceparent: r.number,
		})
		answers <- answer{t, err}
	}()
	select {
	case <-p.life.Dead():
		return true
	case a := <-answers:
		if p.life.IsDead() {
			return true
		}
		m.judge.answered(&r, a.t, a.err)
		return a.err == nil && a.t.State == txn.StateUnknown ||
			a.err != nil && slices.Contains([]txn.Code{txn.CodeBrokerUnavailable, txn.CodeDatabaseUnavailable, txn.CodeConflict, txn.CodeOverloaded}, txn.CodeOf(a.err))
	}
}

// submitting is in the context of a POST.
type submitting struct{}

// get lets a client ask for a transaction.
func (m *model) get(id string, at time.Duration) {
	m.requests.Add(1)
	m.w.After(at, func() {
		defer m.requests.Done()
		p := m.some("get " + id)
		before := m.judge.isCommitted(id)
		answered := make(chan struct{})
		go func() {
			t, err := p.service.Get(context.Background(), id)
			if !p.life.IsDead() {
				m.judge.got(id, before, t, err)
			}
			close(answered)
		}()
		select {
		case <-answered:
		case <-p.life.Dead():
		}
	})
}

// some returns one of the processes.
func (m *model) some(client string) *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.processes[m.w.Roll(client, "asks", "").Below(len(m.processes))]
}

// breakThings lets things break, for a few seconds.
func (m *model) breakThings(brokers []string) {
	for range m.roll.Below(4) {
		at := m.roll.Within(3 * time.Second)
		long := m.roll.Within([]time.Duration{time.Second, 12 * time.Second}[m.roll.Below(2)])
		target := brokers[m.roll.Below(len(brokers))]
		place := m.roll.Below(len(m.processes))
		do := []func(){
			func() { m.kill(place, long) }, func() { m.kill(place, long) },
			func() { m.end(place, long) },
			func() {
				m.processAt(place).life.Stop(long)
				m.w.Trace(m.processAt(place).life.Name, "is stopped for %v", long)
			},
			func() { m.cluster.Stop(target, long); m.w.Trace(target, "is stopped for %v", long) },
			func() { m.crash(target, long) },
			func() { m.cluster.FallBehind(target, long); m.w.Trace(target, "has its index %v behind", long) },
			func() { m.crashDatabase(long / 4) },
			func() { m.cluster.LoseHalves(target); m.w.Trace(target, "loses its half messages") },
			func() { m.remove(txn.Queue{Broker: target, ID: 1}, 6*time.Second+long) },
		}[m.roll.Below(10)]
		m.w.After(at, do)
	}
}

// remove removes a queue in two steps.
func (m *model) remove(q txn.Queue, after time.Duration) {
	m.w.Trace(q.Broker, "takes no more for queue %s", q)
	m.cluster.Close(q)
	time.Sleep(after)
	m.w.Trace(q.Broker, "loses queue %s", q)
	m.cluster.Remove(q)
}

func (m *model) processAt(place int) *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.processes[place]
}

// kill kills a process, and starts another in its place after a while.
func (m *model) kill(place int, after time.Duration) {
	p := m.processAt(place)
	if p.life.IsDead() {
		return
	}
	m.w.Trace(p.life.Name, "is killed")
	p.kill()
	time.Sleep(after)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.processes[place] = m.start()
}

// end lets a process end: what it does not finish within the time is lost.
func (m *model) end(place int, within time.Duration) {
	p := m.processAt(place)
	if p.life.IsDead() {
		return
	}
	m.w.Trace(p.life.Name, "is asked to end")
	p.stop()
	time.Sleep(within)
	m.kill(place, 0)
}

func (m *model) crash(target string, after time.Duration) {
	m.w.Trace(target, "crashes")
	if !m.cluster.Crash(target) {
		return
	}
	time.Sleep(after)
	m.cluster.Restart(target)
}

func (m *model) crashDatabase(after time.Duration) {
	m.w.Trace("database", "crashes")
	if !m.database.Crash() {
		return
	}
	time.Sleep(after)
	m.database.Restart()
}

// What is waited for until all has come to rest, of the model's time.
const (
	calmAfter = 15 * time.Second
	patience  = 3 * time.Minute
	look      = 500 * time.Millisecond
)

// rest waits until nothing is under way and nothing is pending any more, and judges.
func (m *model) rest() Result {
	start := time.Now()
	m.requests.Wait()
	for !m.isAtRest() && time.Since(start) < patience {
		time.Sleep(look)
		if time.Since(start) > calmAfter {
			m.w.Calm()
		}
	}
	rows := m.database.Rows()
	violations := m.judge.end(rows, m.cluster.Undecided(), time.Since(start)-calmAfter)
	took := time.Since(start)
	for _, p := range m.processes {
		p.stop()
	}
	m.w.End()
	time.Sleep(time.Minute) // what is under way ends by itself
	return Result{Violations: violations, Trace: m.w.Lines(), Committed: len(m.judge.committed), Took: took}
}

func (m *model) isAtRest() bool {
	return m.w.InFlight() == 0 && m.cluster.Undecided() == 0 &&
		!slices.ContainsFunc(m.database.Rows(), func(r database.Row) bool { return cmp.Compare(r.Delivery, txn.DeliveryPending) == 0 })
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
