package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// transports are held to the same tests.
var transports = []string{"native", "library"}

func TestOrderGoesAllTheWay(t *testing.T) {
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.transport = transport
			s := e.start().ready()
			a := s.mustPost("/v1/orders", order("", "customer-7"), http.StatusCreated)
			if a.State != "committed" || a.Delivery != "delivered" {
				t.Errorf("got %s, %s, want committed, delivered", a.State, a.Delivery)
			}
			e.settle(10 * time.Second)
			copies := e.visible()[a.ID]
			if len(copies) != 1 {
				t.Fatalf("got %d messages, want 1", len(copies))
			}
			m := copies[0]
			if int(m.QueueID) != a.Queue.ID {
				t.Errorf("the message is in queue %d, the answer says %d", m.QueueID, a.Queue.ID)
			}
			wantBody := `{"customer": "customer-7", "currency": "EUR", "items": [{"sku": "tea", "quantity": 2, "amount_minor": 450}]}`
			if string(m.Body) != wantBody {
				t.Errorf("body: got %s, want %s", m.Body, wantBody)
			}
			for name, want := range map[string]string{
				"KEYS": a.ID, "TAGS": "created", "SHARDING_KEY": "customer-7", "TX_ID": a.ID, "TX_KIND": "order.create", "UNIQ_KEY": a.MessageID,
			} {
				if got := m.Properties.Get(name); got != want {
					t.Errorf("property %s: got %q, want %q", name, got, want)
				}
			}
			if got := e.settle(10 * time.Second); got != 1 {
				t.Errorf("got %d committed rows, want 1", got)
			}
			s.stop()
		})
	}
}

func TestSameAnswerForTheSameRequest(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	const parallel = 50
	answers := make([]answer, parallel)
	var wg sync.WaitGroup
	for i := range parallel {
		wg.Go(func() { answers[i] = s.mustPost("/v1/orders", order("order-1", "k"), http.StatusCreated) })
	}
	wg.Wait()
	first := comparable(t, answers[0])
	for _, a := range answers[1:] {
		if diff := cmp.Diff(first, comparable(t, a)); diff != "" {
			t.Fatalf("answers differ (-first +other):\n%s", diff)
		}
	}
	later := s.mustPost("/v1/orders", order("order-1", "k"), http.StatusCreated)
	if diff := cmp.Diff(first, comparable(t, later)); diff != "" || !later.Replayed {
		t.Errorf("a later answer differs, or is not marked as replayed (%t):\n%s", later.Replayed, diff)
	}
	if a := s.mustPost("/v1/orders", order("order-1", "other"), http.StatusUnprocessableEntity); a.Code != "idempotency_mismatch" {
		t.Errorf("another request with the id: got code %s, want idempotency_mismatch", a.Code)
	}
	if got := e.settle(10 * time.Second); got != 1 {
		t.Errorf("got %d committed rows, want 1", got)
	}
}

// comparable is an answer without what may differ: whether it was replayed.
func comparable(t *testing.T, a answer) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(a.Raw), &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "replayed")
	return fields
}

func TestSQLKind(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	o := s.mustPost("/v1/orders", order("", "k"), http.StatusCreated)
	payment := func(id, orderID string, amount int) string {
		return fmt.Sprintf(`{"kind": "payment.capture", "id": %q, "shard_key": "k", "payload": {"order_id": %q, "amount_minor": %d, "currency": "EUR"}}`, id, orderID, amount)
	}
	a := s.mustPost("/v1/transactions", payment("pay-1", o.ID, 900), http.StatusCreated)
	var result struct {
		ID     string `json:"id"`
		Amount int    `json:"amount_minor"`
	}
	if err := json.Unmarshal(a.Result, &result); err != nil || result.ID != "pay-1" || result.Amount != 900 {
		t.Errorf("result: got %s (%v), want the inserted row", a.Result, err)
	}
	for name, body := range map[string]string{
		"check":       payment("pay-2", o.ID, 0),
		"foreign key": payment("pay-3", "no-such-order", 1),
	} {
		for range 2 { // the same id gets the same answer
			if a := s.mustPost("/v1/transactions", body, http.StatusUnprocessableEntity); a.Code != "rejected" {
				t.Errorf("%s: got code %s, want rejected", name, a.Code)
			}
		}
	}
	if got, _ := s.get("pay-2"); got.State != "rolled_back" || got.Delivery != "none" {
		t.Errorf("a refused transaction: got %s, %s, want rolled_back, none", got.State, got.Delivery)
	}
	await.Success(t, 10*time.Second, func() error {
		if got := len(e.visible()); got != 2 {
			return fmt.Errorf("%d visible transactions, want 2", got)
		}
		return nil
	})
}
