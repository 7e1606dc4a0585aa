package localtx

import (
	"context"
	"fmt"

	"github.com/txsvc/txsvc/internal/txn"
)

// Reroute gives a pending row another queue, and the lease back: the relay sends the body there, under the UNIQ_KEY, as if
// there had never been a half message. It is false when the lease was lost. The holder must have nothing under way.
func (s *Store) Reroute(ctx context.Context, lease txn.Lease, route txn.Route, uniqKey, reason string) (bool, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	tag, err := s.exec(ctx, `UPDATE txsvc.transactions
		SET broker = $3, queue_id = $4, selector = $5, reason = $6, uniq_key = $7, outbox = true, commit_log_offset = $8, queue_offset = $8,
			attempts = 0, lease_until = clock_timestamp(), last_error = $9
		WHERE id = $1 AND lease_epoch = $2 AND delivery = 'pending'`, lease.ID, lease.Epoch,
		route.Queue.Broker, route.Queue.ID, selectorText(route), route.Reason, uniqKey, txn.NoHalf, reason)
	if err != nil {
		return false, fmt.Errorf("giving transaction %s another queue: %w", lease.ID, err)
	}
	return tag.RowsAffected() == 1, nil
}
