// Package lines delivers ordered rows. A line is what is committed and not yet visible of one topic and shard key, in the
// order of the commits. A message is sent only when all before it in its line are visible.
package lines

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/delivery/groups"
	"github.com/txsvc/txsvc/internal/txn"
)

const (
	claimLimit  = 500    // rows in one claim, when there are few lines
	linesAtOnce = 100    // lines in one claim
	lineLimit   = 100    // rows of one line in one claim, when there are many lines
	linesLooked = 500    // lines that one look goes through
	linesKnown  = 10_000 // lines of a topic that are remembered to have something
	parallel    = 32     // lines that are worked on at once
	path        = "resolver"
)

// Claims leases lines.
type Claims interface {
	// DueLines looks at up to limit lines after one, and returns those whose head is due and the last it has looked at.
	DueLines(ctx context.Context, topic, after string, brokers []string, limit int) (due []string, last string, err error)
	// ClaimLines leases the heads of lines with those behind them, up to limit each. They come line by line, in order.
	ClaimLines(ctx context.Context, topic string, shardKeys, brokers []string, limit int) ([]txn.Claim, error)
}

// Marks writes delivered marks.
type Marks interface {
	// FlushMarks returns when all marks are in the table.
	FlushMarks(ctx context.Context) error
}

// Gate knows where messages can be sent to now.
type Gate interface {
	// Brokers returns the brokers that the topic can be sent to on.
	Brokers(topic string) []string
}

// Claimed delivers single claimed rows.
type Claimed interface {
	// Deliver makes the message of a row with a half message visible, and says whether it is known to be.
	Deliver(ctx context.Context, c txn.Claim, path string) bool
	// GiveBack gives leases back of which nothing was sent, because of the error, or nil.
	GiveBack(ctx context.Context, claims []txn.Claim, why error)
}

// Sender delivers claimed rows without half messages.
type Sender interface {
	// Send makes messages visible, those of one queue in their order, and returns the ids of those that are known to be.
	Send(ctx context.Context, claims []txn.Claim) map[string]bool
}

// Ports are what Lines use.
type Ports struct {
	Claims  Claims
	Marks   Marks
	Gate    Gate
	Claimed Claimed
	Outbox  Sender
}

// Lines delivers ordered rows. It is safe for concurrent use.
type Lines struct {
	ports  Ports
	runner *groups.Runner[string]
	log    *slog.Logger

	mu     sync.Mutex
	topics map[string]*topic
}

// topic has the known lines of one topic; the mutex guards it.
type topic struct {
	keys  map[string]struct{} // shard keys of lines that have something
	look  bool                // other lines may have something: all are to be looked at
	after string              // the line at which the last look ended
}

// New returns Lines. Run has to be running for rows to be claimed.
func New(ports Ports, log *slog.Logger) *Lines {
	l := &Lines{ports: ports, log: log, topics: make(map[string]*topic)}
	l.runner = groups.NewRunner(func(string) bool { return true }, l.step)
	return l
}

// Wake says that a line has something.
func (l *Lines) Wake(topic, shardKey string) {
	l.mu.Lock()
	l.topic(topic).know(shardKey)
	l.mu.Unlock()
	l.runner.Wake(topic)
}

// Look says that some line of the topic has something.
func (l *Lines) Look(topic string) {
	l.mu.Lock()
	l.topic(topic).look = true
	l.mu.Unlock()
	l.runner.Wake(topic)
}

// Run delivers the rows of lines until ctx is done. Deliveries that have begun then are finished.
func (l *Lines) Run(ctx context.Context) { l.runner.Run(ctx) }

// Idle says that nothing is being delivered.
func (l *Lines) Idle() bool { return l.runner.Idle() }

// topic returns the known lines of the topic; the caller holds the mutex.
func (l *Lines) topic(name string) *topic {
	t := l.topics[name]
	if t == nil {
		t = &topic{keys: make(map[string]struct{})}
		l.topics[name] = t
	}
	return t
}

// know notes a line that has something. Of very many lines it notes only that there are some.
func (t *topic) know(shardKey string) {
	if len(t.keys) >= linesKnown {
		t.look = true
		return
	}
	t.keys[shardKey] = struct{}{}
}

// take removes up to linesAtOnce of the known lines.
func (t *topic) take() (keys []string) {
	for key := range t.keys {
		if len(keys) == linesAtOnce {
			break
		}
		keys = append(keys, key)
		delete(t.keys, key)
	}
	return keys
}

func (t *topic) more() bool { return t.look || len(t.keys) > 0 }

// forget drops the known lines of the topic. The next look finds them again.
func (l *Lines) forget(topic string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.topics, topic)
}

// step delivers one claim from lines of the topic, and says whether there may be more.
func (l *Lines) step(ctx context.Context, topic string) (more bool) {
	brokers := l.ports.Gate.Brokers(topic)
	if len(brokers) == 0 {
		l.forget(topic)
		return false
	}
	keys, more, err := l.next(ctx, topic, brokers)
	if err != nil {
		l.log.DebugContext(ctx, "looking for lines", "error", err)
		l.forget(topic)
		return false
	}
	if len(keys) == 0 {
		return more
	}
	claims, err := l.ports.Claims.ClaimLines(ctx, topic, keys, brokers, max(lineLimit, claimLimit/len(keys)))
	if err != nil {
		l.log.DebugContext(ctx, "claiming lines", "error", err)
		l.forget(topic)
		return false
	}
	if len(claims) == 0 {
		return more
	}
	again := l.deliver(context.WithoutCancel(ctx), claims)
	if err := l.ports.Marks.FlushMarks(context.WithoutCancel(ctx)); err != nil { // without the marks, those behind are not claimed
		l.log.DebugContext(ctx, "marking messages delivered; it is tried again", "error", err)
		l.forget(topic)
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range again {
		l.topic(topic).know(key)
	}
	return true
}

// next returns lines that may have something: known ones, or else those that a look has found. more says that there may be
// others.
func (l *Lines) next(ctx context.Context, topic string, brokers []string) (keys []string, more bool, err error) {
	l.mu.Lock()
	t := l.topic(topic)
	keys = t.take()
	look, after, more := t.look, t.after, t.more()
	l.mu.Unlock()
	if len(keys) > 0 || !look {
		return keys, more, nil
	}
	found, last, err := l.ports.Claims.DueLines(ctx, topic, after, brokers, linesLooked)
	if err != nil {
		return nil, false, err
	}
	keys = found[:min(len(found), linesAtOnce)]
	l.mu.Lock()
	defer l.mu.Unlock()
	t = l.topic(topic)
	for _, key := range found[len(keys):] {
		t.know(key)
	}
	t.after, t.look = last, last != ""
	return keys, t.more(), nil
}

// deliver delivers claims that come line by line, in order, and returns the lines of which all were delivered: they may have
// more. What is behind a message that was not delivered is given back.
func (l *Lines) deliver(ctx context.Context, claims []txn.Claim) (again []string) {
	lines := byLine(claims)
	for len(lines) > 0 {
		var parts [][]txn.Claim
		for i, line := range lines {
			part := alike(line)
			parts, lines[i] = append(parts, part), line[len(part):]
		}
		delivered := l.deliverParts(ctx, parts)
		var rest [][]txn.Claim
		for i, line := range lines {
			switch {
			case !delivered[i]:
				l.ports.Claimed.GiveBack(ctx, line, nil)
			case len(line) > 0:
				rest = append(rest, line)
			default:
				again = append(again, parts[i][0].Message.ShardKey)
			}
		}
		lines = rest
	}
	return again
}

// byLine cuts claims where one line ends.
func byLine(claims []txn.Claim) (lines [][]txn.Claim) {
	for start, i := 0, 1; i <= len(claims); i++ {
		if i == len(claims) || claims[i].Message.ShardKey != claims[start].Message.ShardKey {
			lines = append(lines, claims[start:i])
			start = i
		}
	}
	return lines
}

// alike returns the beginning of a line that goes one way: to one queue, with half messages or without.
func alike(line []txn.Claim) []txn.Claim {
	n := 1
	for n < len(line) && line[n].Outbox == line[0].Outbox && line[n].Message.Queue == line[0].Message.Queue {
		n++
	}
	return line[:n]
}

// deliverParts delivers parts of different lines at once: those without half messages together, queue by queue, and each of
// the others in its order. It says which were delivered whole.
func (l *Lines) deliverParts(ctx context.Context, parts [][]txn.Claim) []bool {
	delivered := make([]bool, len(parts))
	var bodies []txn.Claim
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, part := range parts {
		if part[0].Outbox {
			bodies = append(bodies, part...)
			continue
		}
		g.Go(func() error {
			delivered[i] = l.endInOrder(ctx, part)
			return nil
		})
	}
	sent := l.ports.Outbox.Send(ctx, bodies)
	_ = g.Wait()
	for i, part := range parts {
		if part[0].Outbox {
			delivered[i] = true
			for _, c := range part {
				delivered[i] = delivered[i] && sent[c.Message.TxID]
			}
		}
	}
	return delivered
}

// endInOrder makes half messages of one line visible, each when the one before is.
func (l *Lines) endInOrder(ctx context.Context, part []txn.Claim) bool {
	for i, c := range part {
		if time.Now().After(c.Lease.WriteBefore) {
			l.ports.Claimed.GiveBack(ctx, part[i:], nil)
			return false
		}
		if !l.ports.Claimed.Deliver(ctx, c, path) {
			l.ports.Claimed.GiveBack(ctx, part[i+1:], nil)
			return false
		}
	}
	return true
}
