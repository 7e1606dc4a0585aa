package leases_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(stacktest.With(m))
}

// env is a database of one test, and the claims of the tests.
type env struct{ *pgtest.Env }

func setup(t testing.TB, opts ...pgtest.Option) env {
	t.Helper()
	return env{pgtest.New(t, opts...)}
}

var brokers = []string{"broker-a"}

// insertPending puts pending rows into the table: $1 rows of each of the keys after $2 up to $3.
const insertPending = `INSERT INTO txsvc.transactions (id, kind, state, delivery, shard_key, topic, tag, broker, queue_id, selector, reason,
		uniq_key, commit_log_offset, queue_offset, body, created_at, decided_at, lease_until, outbox, ordered, line)
	SELECT CASE WHEN $4 THEN 'k' ELSE 'o' END || k || '-' || n, 'orders', 'committed', 'pending', 'k' || k, 't', '', 'broker-a', 0, '', '', k || '-' || n, -1, -1, '{}',
		now(), now(), now() - interval '1 s' + n * interval '1 us', true, $4, CASE WHEN $4 THEN nextval('txsvc.line') END
	FROM generate_series(1, $1::int) AS n, generate_series($2::int + 1, $3::int) AS k`

// standing puts lines into the table, one for each key, of so many rows.
func (e env) standing(rows, keys int) {
	e.T.Helper()
	e.Exec(insertPending, rows, 0, keys, true)
}

func (e env) claimLines(limit int, keys ...string) []txn.Claim {
	e.T.Helper()
	claims, err := e.Store.ClaimLines(e.T.Context(), "t", keys, brokers, limit)
	if err != nil {
		e.T.Fatal(err)
	}
	return claims
}

// inOrder returns the ids of claims as they came.
func inOrder(claims []txn.Claim) string {
	ids := make([]string, len(claims))
	for i, c := range claims {
		ids[i] = c.Lease.ID
	}
	return strings.Join(ids, " ")
}

// expire ends all leases, as if the given time had passed since.
func (e env) expire(since time.Duration) {
	e.T.Helper()
	e.Exec(`UPDATE txsvc.transactions SET lease_until = clock_timestamp() - $1::interval WHERE delivery = 'pending'`, since)
}

func (e env) claimDue(brokers []string, limit int) []txn.Claim {
	e.T.Helper()
	claims, err := e.Store.ClaimDue(e.T.Context(), brokers, limit)
	if err != nil {
		e.T.Fatal(err)
	}
	return claims
}

func idsOf(claims []txn.Claim) []string {
	ids := []string{}
	for _, c := range claims {
		ids = append(ids, c.Lease.ID)
	}
	slices.Sort(ids)
	return ids
}

func (e env) claimOutbox(topic string, limit int) []txn.Claim {
	e.T.Helper()
	claims, err := e.Store.ClaimOutbox(e.T.Context(), "broker-a", topic, limit)
	if err != nil {
		e.T.Fatal(err)
	}
	return claims
}
