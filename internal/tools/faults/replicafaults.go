package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
)

var replicaFaults = []fault{
	{name: "replica-kill", about: "SIGKILL of a replica, and its restart", draw: replicaKill},
	{name: "replica-pause", about: "SIGSTOP and SIGCONT of a replica, 1 to 30 s", draw: replicaPause},
	{name: "die-half-sent", about: "SIGKILL with half messages stored and no local transaction begun", draw: dieAt("half-sent")},
	{name: "die-local", about: "SIGKILL within local transactions", draw: dieAt("local")},
	{name: "die-committed", about: "SIGKILL after COMMITs, before END_TRANSACTION", draw: dieAt("committed")},
	{name: "die-end-sent", about: "SIGKILL with END_TRANSACTIONs written, unanswered", draw: dieAt("end-sent")},
	{name: "die-end-answered", about: "SIGKILL with END_TRANSACTIONs answered, before the answers to the clients", draw: dieAt("end-answered")},
	{name: "rolling-restart", about: "SIGTERM and restart of one replica after the other", draw: rollingRestart},
}

func replicaKill(r *rand.Rand) event {
	i, down := r.IntN(replicaCount), between(r, 0, 4*time.Second)
	return event{
		detail: fmt.Sprintf("replica-%d, down for %s", i, down), holds: []string{partReplica(i)}, length: down + time.Second,
		run: func(ctx context.Context, w *world) (string, error) {
			w.replicas[i].kill()
			pause.For(ctx, down)
			return "", w.replicas[i].start(context.WithoutCancel(ctx))
		},
	}
}

func replicaPause(r *rand.Rand) event {
	i, held := r.IntN(replicaCount), oneOf(r, 1, 2, 3, 5, 8, 9, 10, 15, 30)
	stopped := time.Duration(held) * time.Second
	return event{
		detail: fmt.Sprintf("replica-%d, %s", i, stopped), holds: []string{partReplica(i)}, length: stopped,
		run: func(ctx context.Context, w *world) (string, error) {
			w.replicas[i].signal(syscall.SIGSTOP, false)
			pause.For(ctx, stopped)
			w.replicas[i].signal(syscall.SIGCONT, false)
			return "", nil
		},
	}
}

// dieLimit bounds the wait until a replica reaches its failpoint, because other faults may hold all requests back from
// it.
const dieLimit = 20 * time.Second

// dieAt restarts a replica so that it dies when count transactions are at the point, and restarts it again.
func dieAt(point string) func(r *rand.Rand) event {
	return func(r *rand.Rand) event {
		i, count := r.IntN(replicaCount), 1+r.IntN(8)
		return event{
			detail: fmt.Sprintf("replica-%d at %s@%d", i, point, count), holds: []string{partReplica(i)}, length: 5 * time.Second,
			run: func(ctx context.Context, w *world) (string, error) {
				replica := w.replicas[i]
				replica.kill()
				whole := context.WithoutCancel(ctx)
				if err := replica.start(whole, fmt.Sprintf("TXSVC_FAILPOINT=%s@%d", point, count)); err != nil {
					return "", err
				}
				proof := "died there"
				select {
				case <-replica.ended():
				case <-ctx.Done():
				case <-time.After(dieLimit):
					proof = ""
				}
				replica.kill()
				return proof, replica.start(whole)
			},
		}
	}
}

func rollingRestart(r *rand.Rand) event {
	between := between(r, 0, time.Second)
	return event{
		detail: fmt.Sprintf("%s between", between), holds: eachReplica(partReplica), length: 8 * time.Second,
		run: func(ctx context.Context, w *world) (string, error) {
			for _, replica := range w.replicas {
				if err := replica.stop(); err != nil {
					w.log.WarnContext(ctx, "a replica did not end as it should", "error", err)
				}
				if err := replica.start(context.WithoutCancel(ctx)); err != nil {
					return "", err
				}
				pause.For(ctx, between)
			}
			return "", nil
		},
	}
}
