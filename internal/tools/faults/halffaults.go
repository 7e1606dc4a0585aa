package faults

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/migrations"
)

// halfFaults change how brokers store half messages, or which service they ask about them.
var halfFaults = []fault{
	{name: "rocksdb-halves", about: "a broker that keeps half messages in RocksDB, while a replica is killed and started again", draw: rocksDBHalves},
	{name: "transient-store-pool", about: "a broker that cannot read half messages back for a moment", draw: transientStorePool},
	{name: "shared-group", about: "another service, with another database, in the same producer group, while a broker asks back each second", draw: sharedGroup},
}

// rocksDBTopic is the topic of half messages in RocksDB.
const rocksDBTopic = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"

// rocksDBHalves also kills the broker with half messages in either store. Those in the store that is not used any more
// can be ended, and the broker does not ask about them.
func rocksDBHalves(r *rand.Rand) event {
	i, victim, held := r.IntN(brokerCount), r.IntN(replicaCount), between(r, 4*time.Second, 8*time.Second)
	config := map[string]string{"transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "false"}
	if r.IntN(2) == 0 {
		config["transactionTimeOut"], config["transactionCheckInterval"] = "1000", "1000"
	}
	name := devstack.BrokerName(i)
	return event{
		detail: fmt.Sprintf("%s, %s, replica-%d, asking after %s ms", name, held, victim, config["transactionTimeOut"]),
		holds:  []string{partBroker(i), partReplica(victim)}, length: held + 14*time.Second,
		run: func(ctx context.Context, w *world) (string, error) {
			stored := int64(0)
			err := w.reconfigured(i, config, nil, func() error {
				before := w.offset(ctx, name, rocksDBTopic)
				pause.For(ctx, held/2)
				w.replicas[victim].kill()
				err := w.replicas[victim].start(context.WithoutCancel(ctx))
				pause.For(ctx, held/2)
				stored = w.offset(ctx, name, rocksDBTopic) - before
				return err
			})
			if stored <= 0 {
				return "", err
			}
			return fmt.Sprintf("%d half messages were in RocksDB", stored), err
		},
	}
}

// transientStorePool stops the broker in an orderly way afterwards. If it were killed, it would lose messages that it
// has confirmed and not yet written to its file, and no client could know. It is always the first broker, because a
// file of its log has to be filled, and the second one's disk may be small.
func transientStorePool(r *rand.Rand) event {
	i, held := 0, between(r, 4*time.Second, 10*time.Second)
	return event{
		detail: fmt.Sprintf("%s, %s", devstack.BrokerName(i), held), holds: []string{partBroker(i)}, length: held + 20*time.Second,
		run: func(ctx context.Context, w *world) (string, error) {
			broker := w.stack.Broker(i)
			broker.Kill()
			w.stack.ReconfigureBroker(i, map[string]string{
				"transientStorePoolEnable": "true", "transientStorePoolSize": "3",
				"commitIntervalCommitLog": "500", "commitCommitLogThoroughInterval": "500", // 200 by default: a busy machine is slower
			}, nil)
			err := startProcess(broker)
			refused := false
			if err == nil {
				refused = w.refusesFreshHalves(ctx, devstack.BrokerName(i))
				pause.For(ctx, held)
				whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), restartLimit)
				err = broker.Stop(whole)
				cancel()
			}
			if err != nil {
				return "", err
			}
			w.stack.ReconfigureBroker(i, nil, nil)
			if err = startProcess(broker); err != nil || !refused {
				return "", err
			}
			return "an end of a fresh half message was refused", nil
		},
	}
}

// refusesFreshHalves fills the file of the log that the broker has open, because the broker still writes that one as
// before. Then it stores a half message of the suite's own in the next file, and reports whether the broker refuses to
// end it.
func (w *world) refusesFreshHalves(ctx context.Context, broker string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := w.mq.Send(ctx, broker, &remoting.SendRequest{Topic: scratchTopic, Body: make([]byte, 2<<20)}); err != nil {
			pause.For(ctx, 100*time.Millisecond)
			continue
		}
		half, err := w.mq.Send(ctx, broker, &remoting.SendRequest{Topic: scratchTopic, Half: true, Body: []byte("{}")})
		if err != nil {
			continue
		}
		refused := false
		_ = retry(ctx, 2*time.Second, func() error {
			err := w.mq.EndTransaction(ctx, broker, &remoting.EndRequest{
				UniqKey: half.UniqKey, CommitLogOffset: half.CommitLogOffset, HalfQueueOffset: half.QueueOffset, Decision: remoting.Rollback,
			})
			refused = refused || err != nil && strings.Contains(err.Error(), "Find prepared transaction message failed")
			return err
		})
		if refused {
			return true
		}
	}
	return false
}

// sharedGroup starts another service in the same producer group. It must answer nothing and write nothing. Local
// transactions wait meanwhile, so that brokers have half messages to ask about.
func sharedGroup(r *rand.Rand) event {
	i, held := r.IntN(brokerCount), between(r, 8*time.Second, 12*time.Second)
	return event{
		detail: fmt.Sprintf("%s, %s", devstack.BrokerName(i), held), holds: []string{partBroker(i), partSlowTable, partDatabase}, length: held + 14*time.Second,
		run: func(ctx context.Context, w *world) (string, error) {
			asked := 0
			err := w.reconfigured(i, impatient("1000"), nil, func() error {
				if err := w.foreign.start(context.WithoutCancel(ctx)); err != nil {
					return err
				}
				defer w.foreign.kill()
				free, err := w.lockSlowTable(ctx)
				if err != nil {
					return err
				}
				pause.For(ctx, held)
				free()
				var answered int
				if asked, answered = w.foreign.checkbacks(ctx); answered > 0 {
					return fmt.Errorf("the foreign service answered %d check-backs about our half messages", answered)
				}
				return nil
			})
			if asked == 0 {
				return "", err
			}
			return fmt.Sprintf("it was asked about %d of our half messages", asked), err
		},
	}
}

// checkbacks reads from a service's metrics how many check-backs it has left to others, and how many it has answered.
func (r *replica) checkbacks(ctx context.Context) (foreign, answered int) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url()+"/metrics", http.NoBody)
	if err != nil {
		return 0, 0
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, 0
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "} ")
		count := 0
		if !strings.HasPrefix(name, "txsvc_checkbacks_total{") {
			continue
		}
		_, _ = fmt.Sscan(value, &count)
		switch {
		case strings.Contains(name, `answer="foreign"`):
			foreign += count
		case strings.Contains(name, `answer="commit"`), strings.Contains(name, `answer="rollback"`):
			answered += count
		}
	}
	return foreign, answered
}

// newForeign makes a service with the same kinds and group, without proxies, and with a database of its own.
func (w *world) newForeign(ctx context.Context, binary, config string) (*replica, error) {
	conn, err := pgx.Connect(ctx, w.stack.DatabaseURL())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err = conn.Exec(ctx, "CREATE DATABASE foreign_service"); err != nil {
		return nil, fmt.Errorf("creating the database of another service: %w", err)
	}
	database, err := url.Parse(w.stack.DatabaseURL())
	if err != nil {
		return nil, err
	}
	database.Path = "/foreign_service"
	if err = migrations.Up(ctx, database.String(), migrations.Core); err != nil {
		return nil, err
	}
	// Both servers, because they change roles and one of them takes writes.
	database.Host = fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d", w.primary.Port(), w.standby.Port())
	query := database.Query()
	query.Set("target_session_attrs", "read-write")
	database.RawQuery = query.Encode()
	r := &replica{index: replicaCount, name: "foreign", binary: binary, log: filepath.Join(w.dir, "foreign.log")}
	if r.listen, err = freePort(ctx); err != nil {
		return nil, err
	}
	r.env = []string{
		"TXSVC_LISTEN=" + r.listen, "TXSVC_DATABASE_URL=" + database.String(), "TXSVC_NAMESERVERS=" + w.stack.Nameservers()[0],
		"TXSVC_ROCKETMQ_GROUP=" + group, "TXSVC_CONFIG=" + config, "GORACE=halt_on_error=1",
	}
	return r, nil
}
