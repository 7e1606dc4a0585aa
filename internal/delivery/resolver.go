package delivery

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/txn"
)

const (
	claimLimit = 500 // rows in one claim
	parallel   = 32  // claimed rows that are worked on at once
	warnEvery  = 30 * time.Second
)

// deliverer delivers one claimed row with a half message.
type deliverer interface {
	Deliver(ctx context.Context, c txn.Claim, path string) bool
	Rollback(ctx context.Context, h txn.Half)
}

// resolver delivers rows with half messages that belong to no line. Only one goroutine at a time may use it.
type resolver struct {
	claims  HalfClaims
	brokers brokers
	// evidence says for which brokers claiming makes sense.
	evidence interface {
		Claimable(brokers []string) []string
	}
	claimed deliverer
	timing  txn.Timing
	log     *slog.Logger
	warned  time.Time
}

// deliverDue claims and delivers until nothing is due.
func (r *resolver) deliverDue(ctx context.Context) {
	for ctx.Err() == nil {
		brokers := r.evidence.Claimable(r.brokers.Brokers())
		if len(brokers) == 0 {
			return
		}
		claims, err := r.claim(ctx, brokers)
		if err != nil {
			r.warnSometimes(ctx, err)
			return
		}
		var g errgroup.Group
		g.SetLimit(parallel)
		for _, c := range claims {
			g.Go(func() error {
				r.claimed.Deliver(context.WithoutCancel(ctx), c, "resolver")
				return nil
			})
		}
		_ = g.Wait()
		if len(claims) < claimLimit {
			return
		}
	}
}

func (r *resolver) claim(ctx context.Context, brokers []string) ([]txn.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timing.CallWithin)
	defer cancel()
	return r.claims.ClaimDue(ctx, brokers, claimLimit)
}

// warnSometimes logs that the database is away or has no tables, but not four times a second.
func (r *resolver) warnSometimes(ctx context.Context, err error) {
	if time.Since(r.warned) < warnEvery {
		return
	}
	r.warned = time.Now()
	r.log.WarnContext(ctx, "pending deliveries cannot be looked for; it is tried again all the time", "error", err)
}
