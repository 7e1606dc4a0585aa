package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// standbyFaults begin with a new standby, a copy of the primary, and make each COMMIT wait for it.
var standbyFaults = []fault{
	{name: "standby-lost", about: "the synchronous standby is away for a while, and sessions that wait for it are cancelled", draw: standbyLost},
	{name: "standby-promoted", about: "the same, and then the server dies and the standby takes over", draw: standbyPromoted},
}

func standbyLost(r *rand.Rand) event     { return loseStandby(r, false) }
func standbyPromoted(r *rand.Rand) event { return loseStandby(r, true) }

func loseStandby(r *rand.Rand, promoted bool) event {
	away, stopped, cancelled := between(r, time.Second, 10*time.Second), r.IntN(2) == 0, r.IntN(2) == 0
	detail := fmt.Sprintf("away for %s", away)
	if stopped {
		detail = fmt.Sprintf("stands still for %s", away)
	}
	if cancelled {
		detail += ", COMMITs cancelled"
	}
	holds := append(eachReplica(func(i int) string { return partLink(i, linkDatabase) }), partDatabase)
	return event{
		detail: detail, holds: holds, length: away + 5*time.Second,
		run: func(ctx context.Context, w *world) (proof string, err error) {
			whole := context.WithoutCancel(ctx)
			if err := w.addStandby(whole); err != nil {
				return "", err
			}
			pause.For(ctx, time.Second)
			if stopped {
				w.standby.Pause()
			} else {
				w.standby.Kill()
			}
			proof, err = w.waitUnconfirmed(ctx, away, cancelled)
			switch {
			case promoted:
				return proof, errors.Join(err, w.failOver(whole))
			case stopped:
				w.standby.Resume()
			default:
				err = errors.Join(err, startProcess(w.standby.Process))
			}
			return proof, errors.Join(err, w.removeStandby(whole))
		},
	}
}

func (w *world) addStandby(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restartLimit)
	defer cancel()
	if err := w.standby.Follow(ctx, w.primary); err != nil {
		return fmt.Errorf("following: %w", err)
	}
	if err := w.primary.WaitForStandby(ctx, true); err != nil {
		return err
	}
	return retry(ctx, restartLimit, func() error {
		n := 0
		err := w.db.QueryRow(ctx, `SELECT count(*) FROM pg_stat_replication WHERE application_name = $1 AND sync_state = 'sync'`, devstack.StandbyName).Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("the standby is not synchronous")
		}
		return err
	})
}

// waitUnconfirmed counts the COMMITs that wait. When they are cancelled, others see their rows although no standby has
// them.
func (w *world) waitUnconfirmed(ctx context.Context, away time.Duration, cancelled bool) (proof string, err error) {
	statement := `SELECT count(*), 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'`
	if cancelled {
		statement = `SELECT count(*), count(*) FILTER (WHERE pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND random() < 0.3`
	}
	most, ended := 0, 0
	for until := time.Now().Add(away); time.Now().Before(until) && ctx.Err() == nil; pause.For(ctx, 200*time.Millisecond) {
		waiting, struck := 0, 0
		if err := w.db.QueryRow(ctx, statement).Scan(&waiting, &struck); err != nil && ctx.Err() == nil {
			return "", fmt.Errorf("counting sessions that wait: %w", err)
		}
		most, ended = max(most, waiting), ended+struck
	}
	if most == 0 {
		return "", nil
	}
	return fmt.Sprintf("%s waited, %d cancelled", plural(most, "COMMITs"), ended), nil
}

// failOver acts like a cluster manager: the old primary is certainly dead when the standby takes over. A paused standby
// is killed as well, because it would find everything that it has missed in its socket.
func (w *world) failOver(ctx context.Context) error {
	w.primary.Kill()
	w.standby.Kill()
	if err := startProcess(w.standby.Process); err != nil {
		return err
	}
	if err := w.standby.Promote(ctx); err != nil {
		return err
	}
	w.primary, w.standby = w.standby, w.primary
	for _, r := range w.replicas {
		r.links[linkDatabase].retarget(net.JoinHostPort("127.0.0.1", strconv.Itoa(w.primary.Port())))
	}
	return nil
}

func (w *world) removeStandby(ctx context.Context) error {
	if err := w.primary.WaitForStandby(ctx, false); err != nil {
		return err
	}
	w.standby.Kill()
	return nil
}
