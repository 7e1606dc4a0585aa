package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/devstack"
)

// indexThread is the broker's thread that writes consume queues and the index.
const indexThread = "ReputMessageService"

// TestIndexFallsBehind: messages are visible that nobody has marked, and the broker's index does not know them for longer
// than a lease. Nobody makes them visible again.
func TestIndexFallsBehind(t *testing.T) {
	for _, kind := range []string{"half", "outbox"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e, stack := newPrivateEnv(t, devstack.Options{})
			e.counted()
			dying := e.start("TXSVC_FAILPOINT=" + map[string]string{"half": "end-answered@10", "outbox": "relay-answered@1"}[kind]).ready()
			resume, err := stack.Broker(0).PauseThread(indexThread)
			if err != nil {
				t.Fatal(err)
			}
			resume = sync.OnceFunc(resume)
			defer resume()
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() {
					_, _ = dying.post("/v1/transactions", numbered(kind, fmt.Sprint("tx-", i), fmt.Sprint("key-", i)))
				})
			}
			wg.Wait()
			dying.awaitDeath()
			e.start().ready()
			time.Sleep(20 * time.Second) // the outage itself: longer than a lease, and what else is waited for
			resume()
			if got := e.settleInOrder(recoverLimit); got == 0 {
				t.Error("nothing was committed")
			}
		})
	}
}
