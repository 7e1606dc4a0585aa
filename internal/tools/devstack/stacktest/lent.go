package stacktest

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/migrations"
)

// lendable is a stack that tests may break, one after the other.
type lendable struct {
	options string
	stack   *devstack.Stack
	release func()
}

// idleMost is how many stacks wait to be lent again. Each costs a tenth of a core while it waits.
const idleMost = 3

// lent has the stacks that no test has now, the one that waits longest first. They end with the test binary.
var lent struct {
	sync.Mutex
	free []lendable
}

// Lent lends a stack to one test, which may stop, kill and pause its processes, and returns it with the URL of a migrated
// database of the test's own there. Afterwards the stack is healed, and lent to the next test with the same options, because a
// new stack costs ten times the CPU. After a test that failed, it is not lent again.
func Lent(tb testing.TB, o devstack.Options) (s *devstack.Stack, databaseURL string) {
	tb.Helper()
	key := fmt.Sprint(o.Brokers, o.Slaves, o.BrokerConfig, o.PostgresConfig)
	l := takeLent(tb, key, o)
	name := newName("test_")
	tb.Cleanup(func() {
		if !tb.Failed() && l.whole(name) {
			l = giveBack(l)
		}
		if l.release != nil {
			l.release()
		}
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

func takeLent(tb testing.TB, options string, o devstack.Options) lendable {
	tb.Helper()
	lent.Lock()
	i := slices.IndexFunc(lent.free, func(l lendable) bool { return l.options == options })
	if i >= 0 {
		defer lent.Unlock()
		l := lent.free[i]
		lent.free = slices.Delete(lent.free, i, i+1)
		return l
	}
	lent.Unlock()
	ctx, cancel := context.WithTimeout(tb.Context(), startLimit)
	defer cancel()
	s, release, err := StartTemporary(ctx, o)
	if err != nil {
		tb.Fatal(err)
	}
	return lendable{options, s, release}
}

// giveBack lets the stack be lent again, and returns the one that has waited longest when too many wait, or none.
func giveBack(l lendable) (surplus lendable) {
	lent.Lock()
	defer lent.Unlock()
	lent.free = append(lent.free, l)
	if len(lent.free) > idleMost {
		surplus = lent.free[0]
		lent.free = slices.Delete(lent.free, 0, 1)
	}
	return surplus
}

// whole heals the stack, removes the test's database, and tells whether the stack can be lent again.
func (l lendable) whole(database string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return l.stack.Heal(ctx) == nil && execute(ctx, l.stack.DatabaseURL(), "drop database "+database+" with (force)") == nil
}

func releaseLent() {
	for _, l := range lent.free {
		l.release()
	}
}
