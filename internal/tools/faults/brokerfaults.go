package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

var brokerFaults = []fault{
	{name: "broker-kill", about: "SIGKILL of a broker under load, and its restart", draw: brokerKill},
	{name: "broker-pause-5s", about: "SIGSTOP of a broker, 5 s, with END_TRANSACTIONs in its sockets", draw: brokerPause(5 * time.Second)},
	{name: "broker-pause-30s", about: "the same, 30 s", draw: brokerPause(30 * time.Second)},
	{name: "nameserver-restart", about: "SIGKILL of the name server, and its restart", draw: nameserverRestart},
	{name: "checkback-storm", about: "a broker that asks back about every half message after 1 s, each second", draw: checkbackStorm},
	{name: "discard", about: "a broker that asks once, after 1 s, while no answer comes through: it gives the half messages up", draw: discard},
}

func brokerKill(r *rand.Rand) event {
	i, down := r.IntN(brokerCount), between(r, 0, 4*time.Second)
	return event{
		detail: fmt.Sprintf("%s, down for %s", devstack.BrokerName(i), down), holds: []string{partBroker(i)}, length: down + 5*time.Second,
		run: func(ctx context.Context, w *world) (string, error) {
			w.stack.Broker(i).Kill()
			pause.For(ctx, down)
			return "", w.startBroker(i)
		},
	}
}

func brokerPause(stopped time.Duration) func(r *rand.Rand) event {
	return func(r *rand.Rand) event {
		i := r.IntN(brokerCount)
		return event{
			detail: devstack.BrokerName(i), holds: []string{partBroker(i)}, length: stopped,
			run: func(ctx context.Context, w *world) (string, error) {
				w.stack.Broker(i).Pause()
				pause.For(ctx, stopped)
				w.stack.Broker(i).Resume()
				return "", nil
			},
		}
	}
}

func nameserverRestart(r *rand.Rand) event {
	down := oneOf(r, 0, 0, 1, 5, 15)
	away := time.Duration(down) * time.Second
	return event{
		detail: fmt.Sprintf("down for %s", away), holds: []string{partNameserver}, length: away + 3*time.Second,
		run: func(ctx context.Context, w *world) (string, error) {
			w.stack.Namesrv().Kill()
			pause.For(ctx, away)
			return "", startProcess(w.stack.Namesrv())
		},
	}
}

// reconfigured restarts the broker with other settings, calls do, and restarts it with its own settings.
func (w *world) reconfigured(i int, config map[string]string, env []string, do func() error) error {
	broker := w.stack.Broker(i)
	broker.Kill()
	w.stack.ReconfigureBroker(i, config, env)
	err := startProcess(broker)
	if err == nil {
		err = do()
	}
	broker.Kill()
	w.stack.ReconfigureBroker(i, nil, nil)
	return errors.Join(err, startProcess(broker))
}

func impatient(asks string) map[string]string {
	return map[string]string{"transactionTimeOut": "1000", "transactionCheckInterval": "1000", "transactionCheckMax": asks}
}

func checkbackStorm(r *rand.Rand) event {
	i, held := r.IntN(brokerCount), between(r, 8*time.Second, 15*time.Second)
	return event{
		detail: fmt.Sprintf("%s, %s", devstack.BrokerName(i), held), holds: []string{partBroker(i)}, length: held + 10*time.Second,
		run: func(ctx context.Context, w *world) (string, error) {
			return "", w.reconfigured(i, impatient("1000"), nil, func() error { pause.For(ctx, held); return nil })
		},
	}
}

// givenUp is the topic for half messages that a broker has given up.
const givenUp = "TRANS_CHECK_MAX_TIME_TOPIC"

// discard cuts all replicas off from the broker until the broker gives their half messages up.
func discard(r *rand.Rand) event {
	i, held, vanishes := r.IntN(brokerCount), between(r, 6*time.Second, 9*time.Second), r.IntN(2) == 0
	name := devstack.BrokerName(i)
	how := "connections are cut"
	if vanishes {
		how = "requests vanish"
	}
	holds := append(eachReplica(func(replica int) string { return partLink(replica, name) }), partBroker(i))
	return event{
		detail: fmt.Sprintf("%s, %s for %s", name, how, held), holds: holds, length: held + 12*time.Second,
		run: func(ctx context.Context, w *world) (string, error) {
			before, given := int64(0), int64(0)
			err := w.reconfigured(i, impatient("1"), nil, func() error {
				before = w.offset(ctx, name, givenUp)
				pause.For(ctx, 2*time.Second)
				for _, replica := range w.replicas {
					if link := replica.links[name]; vanishes {
						link.set(vanish, pass)
					} else {
						link.refuse()
					}
				}
				pause.For(ctx, held)
				given = w.offset(ctx, name, givenUp) - before
				for _, replica := range w.replicas {
					replica.links[name].heal()
				}
				return nil
			})
			if given <= 0 {
				return "", err
			}
			return fmt.Sprintf("%d half messages were given up", given), err
		},
	}
}

// offset returns the number of messages that were ever in the first queue of a topic; 0 when the broker does not
// answer.
func (w *world) offset(ctx context.Context, broker, topic string) int64 {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	count := int64(0)
	_ = retry(ctx, 3*time.Second, func() (err error) {
		count, err = w.mq.MaxOffset(ctx, broker, topic, 0)
		return err
	})
	return count
}
