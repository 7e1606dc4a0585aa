package nearest_test

import (
	"testing"

	"github.com/txsvc/txsvc/internal/nearest"
)

func TestName(t *testing.T) {
	candidates := []string{"orders", "refunds", "payments", "a"}
	for name, want := range map[string]string{
		"refund": "refunds", "ordres": "orders", "order": "orders", "Payments": "payments", "paymens": "payments", "b": "a",
		"notes": "", "": "a", "orderly-refunds": "",
	} {
		if got, _ := nearest.Name(name, candidates); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
