package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// rootFaults need root, and tools that some machines lack.
var rootFaults = []fault{
	{name: "packets-broker", about: "packets to or from a broker are dropped by the kernel: connections are half-open", root: true, draw: losePacketsTo("broker")},
	{name: "packets-database", about: "the same with the database", root: true, draw: losePacketsTo("database")},
	{name: "clock-skew", about: "a broker whose clock is up to 5 min wrong", root: true, draw: clockSkew},
	{name: "index-behind", about: "a broker that stores and does not index: what it has made visible nobody finds yet, 1 to 20 s", root: true, draw: indexBehind},
	{name: "disk-full", about: "a broker whose disk is so full that it refuses messages", root: true, draw: diskFull},
}

func losePacketsTo(to string) func(r *rand.Rand) event {
	return func(r *rand.Rand) event {
		i, link, held := r.IntN(replicaCount), drawLink(r, to), between(r, time.Second, 12*time.Second)
		which := r.IntN(3)
		requests, replies := which != 1, which != 0
		return event{
			detail: fmt.Sprintf("replica-%d to %s, %s, %s", i, link, []string{"requests", "replies", "both"}[which], held),
			holds:  []string{partLink(i, link)}, length: held,
			run: func(ctx context.Context, w *world) (string, error) {
				_, port, err := net.SplitHostPort(w.replicas[i].links[link].addr())
				if err != nil {
					return "", err
				}
				table := tableName() + "_" + port
				if err := losePackets(ctx, table, port, requests, replies); err != nil {
					return "", err
				}
				pause.For(ctx, held)
				return "", findPackets(ctx, table)
			},
		}
	}
}

// fakeTime returns the library that gives a process another clock.
func fakeTime() (string, error) {
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib64/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 { // the patterns are well-formed
			return found[0], nil
		}
	}
	return "", errors.New("libfaketime is not installed")
}

// clockSkew restarts a broker with a wrong clock. Its monotonic clock is right.
func clockSkew(r *rand.Rand) event {
	i, skew, held := r.IntN(brokerCount), oneOf(r, "-300s", "-30s", "+30s", "+300s"), between(r, 8*time.Second, 15*time.Second)
	return event{
		detail: fmt.Sprintf("%s by %s for %s", devstack.BrokerName(i), skew, held), holds: []string{partBroker(i)}, length: held + 10*time.Second,
		run: func(ctx context.Context, w *world) (string, error) {
			library, err := fakeTime()
			if err != nil {
				return "", err
			}
			// The last variable is needed, because otherwise waits by the monotonic clock end at once, and all threads
			// of the JVM spin.
			env := []string{"LD_PRELOAD=" + library, "FAKETIME=" + skew, "FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1", "FAKETIME_FORCE_MONOTONIC_FIX=0"}
			return "", w.reconfigured(i, nil, env, func() error { pause.For(ctx, held); return nil })
		},
	}
}

func indexBehind(r *rand.Rand) event {
	i, held := r.IntN(brokerCount), between(r, time.Second, 20*time.Second)
	return event{
		detail: fmt.Sprintf("%s for %s", devstack.BrokerName(i), held), holds: []string{partBroker(i)}, length: held,
		run: func(ctx context.Context, w *world) (string, error) {
			resume, err := w.stack.Broker(i).PauseThread(devstack.IndexThread)
			if err != nil {
				return "", err
			}
			defer resume()
			pause.For(ctx, held)
			return "its thread stood", nil
		},
	}
}

// smallBroker has its store on the small disk.
const smallBroker = 1

const (
	// refusesAt is the use of a disk, in per cent, from which a broker refuses messages.
	refusesAt = 90
	// refusesWithin bounds the time until the broker notices. It looks every 10 s, and first a minute after its start.
	refusesWithin = 80 * time.Second
	// neverLess is the number of bytes that always stay free.
	neverLess = 48 << 20
)

func diskFull(r *rand.Rand) event {
	held := between(r, 8*time.Second, 12*time.Second)
	return event{
		detail: fmt.Sprintf("%s, refusing for %s", devstack.BrokerName(smallBroker), held), holds: []string{partBroker(smallBroker)}, length: held + 15*time.Second,
		run: func(ctx context.Context, w *world) (string, error) {
			// The rest is room for messages until the broker looks.
			if err := w.disk.leave(ctx, 100-refusesAt-3); err != nil {
				return "", err
			}
			refused := false
			for until := time.Now().Add(refusesWithin); !refused && time.Now().Before(until) && ctx.Err() == nil; {
				pause.For(ctx, 500*time.Millisecond)
				if _, free, err := w.disk.usage(); err != nil || free < neverLess {
					break // a broker that cannot write at all loses what it confirmed
				}
				refused = w.refusesMessages(ctx, smallBroker)
			}
			if refused {
				pause.For(ctx, held)
			}
			if err := w.disk.resize(ctx, diskSize); err != nil || !refused {
				return "", err
			}
			return "it refused messages", nil
		},
	}
}

// refusesMessages sends a message of the suite's own, and reports whether the broker refuses it.
func (w *world) refusesMessages(ctx context.Context, i int) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := w.mq.Send(ctx, devstack.BrokerName(i), &remoting.SendRequest{Topic: scratchTopic, Body: []byte("is there room?")})
	return err != nil && strings.Contains(err.Error(), "disk")
}
