package routing

import (
	"testing"

	"github.com/txsvc/txsvc/internal/txn"
)

// BenchmarkRoute measures how long it takes to route a message, without and with an accepted list.
func BenchmarkRoute(b *testing.B) {
	for _, onChange := range []txn.OnChange{txn.OnChangeRemap, txn.OnChangeRefuse} {
		b.Run(string(onChange), func(b *testing.B) {
			queues := append(list("a", 0, 1, 2, 3), list("b", 0, 1, 2, 3)...)
			r, _, d := replica(b, nil, queues)
			d.OnChange = onChange
			r.views["orders"].accepted.Store(&acceptance{AcceptedQueues: txn.AcceptedQueues{Queues: queues, Version: 1}})
			in := txn.SelectorInput{ShardKey: "customer-7"}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Route(b.Context(), d, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
