package pgtest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/txsvc/txsvc/internal/tools/proxy"
)

// Proxy is between the store and PostgreSQL. It understands where a client's requests end (Sync, Query), counts them, and
// breaks the network at a chosen one.
type Proxy struct {
	*proxy.Proxy[*link]
	t testing.TB

	mu      sync.Mutex
	syncs   int
	action  Action
	planned Action        // for Strike to take
	struck  chan struct{} // see Struck
	held    func()        // delivers what Hold holds
	replied chan struct{} // closed when the server has answered that
	silent  bool
	down    bool
	refused int // connections while down
}

// Action is what happens at the next request.
type Action int

// The actions.
const (
	nothing   Action = iota
	CutBefore        // the connection breaks, the request never arrives
	CutAfter         // the request is executed, and the connection breaks before the reply comes back
	Mute             // the request is executed, and from then on nothing passes, in either direction
	Hold             // the request stays under way until Release, and nothing else passes
)

// NewProxy returns a proxy that Through starts.
func NewProxy(t testing.TB) *Proxy {
	return &Proxy{t: t, struck: make(chan struct{}), replied: make(chan struct{})}
}

// Through starts the proxy, which ends with the test, and returns the URL that leads through it.
func (p *Proxy) Through(database string) string {
	p.t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Proxy, err = proxy.New(p.t.Context(), u.Host, proxy.Hooks[*link]{
		Open: func(client, server net.Conn) *link {
			return &link{proxy: p, client: client, server: server, over: make(chan struct{})}
		},
		Admit: p.admits,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(p.Close)
	u.Host = p.Addr()
	return u.String()
}

// SetDown breaks all connections and refuses new ones, or ends that.
func (p *Proxy) SetDown(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	if down {
		p.Cut()
	}
}

func (p *Proxy) admits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		p.refused++
	}
	return !p.down
}

// Refusals counts the connections that were refused while the proxy was down.
func (p *Proxy) Refusals() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// Requests counts the requests so far.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.syncs
}

// Heal lets everything pass again; connections that were silent are closed on the client's side.
func (p *Proxy) Heal() {
	p.mu.Lock()
	p.silent = false
	p.mu.Unlock()
	p.Each(func(l *link) { _ = l.client.Close() })
}

// Release delivers the request that is under way, and returns when the server has answered it.
func (p *Proxy) Release() {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	held()
	Wait(p.t, "answer to the request that was held", p.replied)
}

// Plan chooses the action that Strike lets happen.
func (p *Proxy) Plan(a Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.struck = make(chan struct{})
	p.planned = a
}

// Strike makes the planned action, if there is one, happen at the next request.
func (p *Proxy) Strike() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.action, p.planned = p.planned, nothing
}

// Struck is closed when the planned action has happened.
func (p *Proxy) Struck() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.struck
}

// next counts a request and takes the action for it, which one that only prepares statements does not have.
func (p *Proxy) next(executes bool) Action {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.syncs++
	if !executes {
		return nothing
	}
	a := p.action
	p.action = nothing
	if a == Mute || a == Hold {
		p.silent = true
	}
	if a != nothing {
		close(p.struck)
	}
	return a
}

func (p *Proxy) isSilent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.silent
}

// link is one connection.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	over           chan struct{} // closed when both sides are
	cutOnce        sync.Once

	mu    sync.Mutex
	cut   bool // at the next reply
	holds bool
	kept  bool // the server does not learn that the client is gone
}

// Carry lets requests and replies through. A connection that both sides ended in silence is over when it is cut.
func (l *link) Carry() {
	var wg sync.WaitGroup
	wg.Go(l.requests)
	wg.Go(l.replies)
	wg.Wait()
	<-l.over
}

// Cut closes both sides.
func (l *link) Cut() {
	l.cutOnce.Do(func() {
		_ = l.client.Close()
		_ = l.server.Close()
		close(l.over)
	})
}

func (l *link) requests() {
	in := bufio.NewReaderSize(l.client, 1<<16)
	startup, err := readMessage(in, 0) // it has no type
	request := request{bytes: startup}
	for ; err == nil; request, err = readRequest(in) {
		if l.proxy.isSilent() {
			continue
		}
		act := nothing
		if request.counts {
			act = l.proxy.next(request.executes)
		}
		if !l.pass(request.bytes, act) {
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.kept && !l.proxy.isSilent() {
		_ = l.server.Close()
	}
}

// pass forwards the request, or not, and says whether the connection goes on.
func (l *link) pass(request []byte, act Action) bool {
	switch act {
	case CutBefore:
		l.Cut()
		return false
	case CutAfter:
		l.mu.Lock()
		l.cut = true
		l.mu.Unlock()
	case Hold:
		l.mu.Lock()
		l.kept = true
		l.mu.Unlock()
		l.proxy.mu.Lock()
		l.proxy.held = func() {
			l.mu.Lock()
			l.holds = true
			l.mu.Unlock()
			_, _ = l.server.Write(request)
		}
		l.proxy.mu.Unlock()
		return true
	}
	_, err := l.server.Write(request)
	return err == nil
}

func (l *link) replies() {
	buffer := make([]byte, 1<<16)
	for {
		n, err := l.server.Read(buffer)
		if err != nil {
			break
		}
		if l.proxy.isSilent() {
			continue
		}
		l.mu.Lock()
		cut, holds := l.cut, l.holds
		l.mu.Unlock()
		if holds {
			close(l.proxy.replied)
		}
		if cut || holds {
			break // the server has answered, so it has executed
		}
		if _, err := l.client.Write(buffer[:n]); err != nil {
			break
		}
	}
	if !l.proxy.isSilent() {
		l.Cut()
	}
}

// request is what a client sends until it waits for an answer.
type request struct {
	bytes    []byte
	counts   bool // it ends in Sync, or is a simple Query
	executes bool // it has an Execute
}

func readRequest(in *bufio.Reader) (request, error) {
	var r request
	for {
		kind, err := in.ReadByte()
		if err != nil {
			return r, err
		}
		message, err := readMessage(in, kind)
		if err != nil {
			return r, err
		}
		r.bytes = append(r.bytes, message...)
		r.executes = r.executes || kind == 'E'
		switch kind {
		case 'S', 'Q':
			r.counts = true
			return r, nil
		case 'H', 'p', 'X': // Flush, password, Terminate
			return r, nil
		}
	}
}

func readMessage(in *bufio.Reader, kind byte) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return nil, err
	}
	rest := make([]byte, binary.BigEndian.Uint32(length[:])-4)
	if _, err := io.ReadFull(in, rest); err != nil {
		return nil, err
	}
	message := append(length[:], rest...)
	if kind != 0 {
		message = append([]byte{kind}, message...)
	}
	return message, nil
}
