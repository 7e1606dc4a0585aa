package postgres_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
)

func TestListenHearsNotify(t *testing.T) {
	t.Parallel()
	p := pgtest.NewProxy(t)
	e := pgtest.New(t, pgtest.WithURL(p.Through))
	other := e.Another(pgtest.WithTiming(pgtest.Quick))
	var heard atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { e.Store.Listen(ctx, func() { heard.Add(1) }) })
	await.True(t, pgtest.Patience, "call when it begins to listen", func() bool { return heard.Load() > 0 })
	before := heard.Load()
	if err := other.Notify(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.True(t, pgtest.Patience, "call of another replica", func() bool { return heard.Load() > before })
	before = heard.Load()
	p.SetDown(true)
	p.SetDown(false)
	await.True(t, pgtest.Patience, "call after the connection was lost", func() bool { return heard.Load() > before })
	before = heard.Load()
	if err := other.Notify(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.True(t, pgtest.Patience, "call on the new connection", func() bool { return heard.Load() > before })
	cancel()
	wg.Wait()
}
