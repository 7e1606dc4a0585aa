package stacktest_test

import (
	"testing"

	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// A stack that a test has broken is whole when the next one gets it, and has nothing of that test's database. One that a test
// has failed with is not lent again.
func TestLent(t *testing.T) {
	o := devstack.Options{BrokerConfig: map[string]string{"transactionCheckMax": "7"}}
	var first *devstack.Stack
	var database string
	t.Run("broken", func(t *testing.T) {
		first, database = stacktest.Lent(t, o)
		connect(t, database)
		first.Postgres().Kill()
		first.Namesrv().Pause()
		first.Broker(0).Kill()
	})
	t.Run("whole", func(t *testing.T) {
		again, other := stacktest.Lent(t, o)
		if again != first || other == database {
			t.Fatalf("got the stack %p with %s, want the same one as before, %p, with another database", again, other, first)
		}
		if out, err := again.MQAdmin(t.Context(), "clusterList"); err != nil || again.Broker(0).PID() == 0 {
			t.Errorf("got %q, %v, want a broker that runs", out, err)
		}
		var databases int
		if err := connect(t, other).QueryRow(t.Context(), "select count(*) from pg_database where datname like 'test_%'").Scan(&databases); err != nil || databases != 1 {
			t.Errorf("got %d databases of tests, %v, want one", databases, err)
		}
	})
}
