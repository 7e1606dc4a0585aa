package claimed

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// lagging is evidence that is always behind by the same time.
type lagging struct {
	*world
	lag time.Duration
}

func (l lagging) Settled(_, _ string, before time.Time) (time.Duration, bool) {
	return max(0, time.Until(before.Add(l.lag))), true
}

// TestEvidenceThatAlwaysLags: each claim of a row ends the lease of the claim before a little later. A row that waits for what was
// sent before its first claim has to be delivered all the same, although evidence lags by more than a lease is quiet.
func TestEvidenceThatAlwaysLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timing := txn.DefaultTiming()
		w := &world{}
		d, _ := w.deliverer()
		d.ports.Evidence = lagging{w, timing.Quiet() + time.Second}
		c := claim()
		c.FreeSince = time.Now()
		for range 5 {
			if d.Deliver(context.Background(), c, "resolver") {
				return
			}
			time.Sleep(time.Second)
			c.Lease.Epoch++
			c.FreeSince, c.Lease.WriteBefore = time.Now(), time.Now().Add(time.Second)
		}
		t.Errorf("not delivered in five claims: %q", w.log)
	})
}

// TestAnotherHolderSetsAnotherGoal: what it has sent is to be waited for, too.
func TestAnotherHolderSetsAnotherGoal(t *testing.T) {
	var g goals
	first, later := time.Now(), time.Now().Add(time.Second)
	c := claim()
	g.remember(c, first)
	c.Lease.Epoch += 2
	if got := g.of(c, later); !got.Equal(later) {
		t.Errorf("got the goal of a claim before another holder's, want %v", later)
	}
	g.remember(c, later)
	c.Lease.Epoch++
	if got := g.of(c, later.Add(time.Second)); !got.Equal(later) {
		t.Errorf("got %v, want the goal of the claim before, %v", got, later)
	}
}
