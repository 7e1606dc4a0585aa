package stacktest

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/migrations"
)

// lendable is a stack that tests may break, one after the other.
type lendable struct {
	stack   *devstack.Stack
	release func()
}

// lent has the stacks that no test has now, by their options. They end with the test binary.
var lent struct {
	sync.Mutex
	free map[string][]lendable
}

// Lent lends a stack to one test, which may stop, kill and pause its processes, and returns it with the URL of a migrated
// database of the test's own there. Afterwards the stack is healed, and lent to the next test with the same options: a new
// stack costs ten times the CPU. After a test that failed, it is not lent again.
func Lent(tb testing.TB, o devstack.Options) (s *devstack.Stack, databaseURL string) {
	tb.Helper()
	key := fmt.Sprint(o.Brokers, o.Slaves, o.BrokerConfig, o.PostgresConfig)
	l := takeLent(tb, key, o)
	name := newName("test_")
	tb.Cleanup(func() {
		if !tb.Failed() && l.whole(name) {
			lent.Lock()
			defer lent.Unlock()
			lent.free[key] = append(lent.free[key], l)
			return
		}
		l.release()
	})
	exec(tb, tb.Context(), l.stack.DatabaseURL(), "create database "+name+" template template0")
	u, err := url.Parse(l.stack.DatabaseURL())
	if err != nil {
		tb.Fatalf("parsing the stack's database URL: %v", err)
	}
	u.Path = "/" + name
	if err := migrations.Up(tb.Context(), u.String(), migrations.Core, migrations.Example); err != nil {
		tb.Fatal(err)
	}
	return l.stack, u.String()
}

func takeLent(tb testing.TB, key string, o devstack.Options) lendable {
	tb.Helper()
	lent.Lock()
	if free := lent.free[key]; len(free) > 0 {
		l := free[len(free)-1]
		lent.free[key] = free[:len(free)-1]
		lent.Unlock()
		return l
	}
	if lent.free == nil {
		lent.free = make(map[string][]lendable)
	}
	lent.Unlock()
	ctx, cancel := context.WithTimeout(tb.Context(), startLimit)
	defer cancel()
	s, release, err := StartTemporary(ctx, o)
	if err != nil {
		tb.Fatal(err)
	}
	return lendable{s, release}
}

// whole heals the stack, removes the test's database, and tells whether the stack can be lent again.
func (l lendable) whole(database string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return l.stack.Heal(ctx) == nil && execute(ctx, l.stack.DatabaseURL(), "drop database "+database+" with (force)") == nil
}

func releaseLent() {
	for _, free := range lent.free {
		for _, l := range free {
			l.release()
		}
	}
}
