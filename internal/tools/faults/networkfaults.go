package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// networkFaults break the network between replicas and one server: for one replica or, every third time, for all.
var networkFaults = func() []fault {
	var list []fault
	for _, to := range []string{"broker", "database"} {
		for _, b := range breakages {
			list = append(list, fault{
				name: b.name + "-" + to, about: fmt.Sprintf("network to %s: %s", to, b.about),
				draw: func(r *rand.Rand) event { return breakLink(r, to, b) },
			})
		}
	}
	return append(list, fault{
		name: "network-nameserver", about: "network to the name server: any of these",
		draw: func(r *rand.Rand) event { return breakLink(r, "name server", oneOf(r, breakages...)) },
	})
}()

// breakage is one way to break a network.
type breakage struct {
	name, about string
	low, high   time.Duration
	do          func(*link)
}

var breakages = []breakage{
	{"cut", "connections are reset, new ones too", 0, 6 * time.Second, (*link).refuse},
	{"slow", "all arrives 2 s later", 3 * time.Second, 8 * time.Second, func(l *link) { l.set(slow, slow) }},
	{"half-open", "nothing arrives, either way", 2 * time.Second, 12 * time.Second, func(l *link) { l.set(vanish, vanish) }},
	{"replies-lost", "requests arrive, replies do not", time.Second, 8 * time.Second, func(l *link) { l.set(pass, vanish) }},
	{"requests-lost", "requests do not arrive", time.Second, 8 * time.Second, func(l *link) { l.set(vanish, pass) }},
}

func drawReplicas(r *rand.Rand) (list []int, name string) {
	if r.IntN(3) > 0 {
		i := r.IntN(replicaCount)
		return []int{i}, fmt.Sprintf("replica-%d", i)
	}
	for i := range replicaCount {
		list = append(list, i)
	}
	return list, "all replicas"
}

// drawLink also draws the server if there are several.
func drawLink(r *rand.Rand, to string) string {
	switch to {
	case "broker":
		return devstack.BrokerName(r.IntN(brokerCount))
	case "database":
		return linkDatabase
	default:
		return linkNameserver
	}
}

func breakLink(r *rand.Rand, to string, b breakage) event {
	replicas, name := drawReplicas(r)
	link, held := drawLink(r, to), between(r, b.low, b.high)
	var holds []string
	for _, i := range replicas {
		holds = append(holds, partLink(i, link))
	}
	return event{
		detail: fmt.Sprintf("%s to %s, %s, %s", name, link, b.name, held), holds: holds, length: held,
		run: func(ctx context.Context, w *world) (string, error) {
			for _, i := range replicas {
				b.do(w.replicas[i].links[link])
			}
			pause.For(ctx, held)
			for _, i := range replicas {
				w.replicas[i].links[link].heal()
			}
			return "", nil
		},
	}
}
