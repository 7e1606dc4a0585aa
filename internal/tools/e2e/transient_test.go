package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// postOrders posts so many orders at once, each again while a busy broker has it refused, and returns how many of the answers
// said "delivered".
func (s *service) postOrders(prefix string, count int) (delivered int) {
	s.t.Helper()
	answers := make([]answer, count)
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() {
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
				var err error
				answers[i], err = s.post("/v1/orders", order(fmt.Sprint(prefix, i), fmt.Sprint(prefix, i)))
				if err != nil || answers[i].HTTPStatus != http.StatusServiceUnavailable {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, a := range answers {
		if a.Delivery == "delivered" {
			delivered++
		}
	}
	return delivered
}

// TestTransientStorePool: a broker that cannot read a half message back for a moment. The answers say delivered all the same,
// and what is refused is rolled back at once. A machine that stands still for more than a second may make exceptions.
func TestTransientStorePool(t *testing.T) {
	t.Parallel()
	e, _ := newPrivateEnv(t, devstack.Options{BrokerConfig: stacktest.Patient(map[string]string{
		"transientStorePoolEnable": "true", "transientStorePoolSize": "3", "mappedFileSizeCommitLog": "16777216",
	})})
	s := e.start().ready()
	const count = 20
	delivered := 0
	for i := range count { // one after the other: each comes before the broker has written anything else to its file
		delivered += s.postOrders(fmt.Sprintf("order-%d-", i), 1)
		s.mustPost("/v1/transactions", fmt.Sprintf(`{"kind": "payment.capture", "id": "no-%d", "shard_key": "k",
			"payload": {"order_id": "none", "amount_minor": -1, "currency": "EUR"}}`, i), http.StatusUnprocessableEntity)
	}
	if delivered < count*3/4 {
		t.Errorf("%d of %d answers say delivered", delivered, count)
	}
	if got := strings.Count(s.log.String(), "rollback not confirmed"); got > count/4 {
		t.Errorf("%d of %d rollbacks were not confirmed", got, count)
	}
	if got := e.settle(recoverLimit); got != count {
		t.Errorf("%d transactions are committed, want %d", got, count)
	}
}
