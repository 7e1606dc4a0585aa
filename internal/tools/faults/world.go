package faults

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/migrations"
)

const (
	replicaCount = 3
	brokerCount  = 2
	queues       = 4 // of each topic on each broker
	group        = "faults"
)

// world has the servers and replicas, and reaches the servers without the proxies.
type world struct {
	dir      string
	stack    *devstack.Stack
	disk     *smallDisk       // of the second broker; nil if not possible here
	primary  *devstack.Server // the database server that takes writes
	standby  *devstack.Server // runs only during faults of standbys
	replicas []*replica
	foreign  *replica // of another service in the same group; runs only during sharedGroup
	db       *pgxpool.Pool
	mq       *remoting.Client
	log      *slog.Logger
	closers  []func()
}

// newWorld builds the service and starts everything. Errors leave nothing running.
func newWorld(ctx context.Context, o Options) (_ *world, err error) {
	w := &world{dir: o.Dir, log: o.Log}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	var binary string
	var prepare errgroup.Group
	prepare.Go(func() (err error) { binary, err = build(ctx, o); return err })
	prepare.Go(func() error { return w.startStack(ctx, o) })
	if err = prepare.Wait(); err != nil {
		return nil, err
	}
	if err = w.prepareStack(ctx); err != nil {
		return nil, err
	}
	return w, w.startReplicas(ctx, binary)
}

func (w *world) close() {
	for i := len(w.closers) - 1; i >= 0; i-- {
		w.closers[i]()
	}
	w.closers = nil
}

func (w *world) atClose(f func()) { w.closers = append(w.closers, f) }

// build makes the service's binary, with failpoints.
func build(ctx context.Context, o Options) (string, error) {
	if o.Binary != "" {
		return o.Binary, nil
	}
	path := filepath.Join(o.Dir, "txsvc")
	args := []string{"build", "-tags", "failpoints", "-o", path}
	if o.Race {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(ctx, "go", append(args, "github.com/txsvc/txsvc/cmd/txsvc")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the service: %w\n%s", err, out)
	}
	return path, nil
}

// startStack starts the stack with PostgreSQL's default durability, because the suite often stops it without a
// checkpoint.
func (w *world) startStack(ctx context.Context, o Options) error {
	dir := filepath.Join(o.Dir, "stack")
	if o.needs("disk-full") {
		disk, err := mountSmallDisk(ctx, filepath.Join(dir, "rocketmq", devstack.BrokerName(1), "store"))
		if err != nil {
			return err
		}
		w.disk = disk
		w.atClose(disk.unmount)
	}
	var err error
	w.stack, err = devstack.Start(ctx, devstack.Options{
		Dir: dir, Brokers: brokerCount,
		PostgresConfig: map[string]string{"max_connections": "300", "checkpoint_timeout": "60s", "max_wal_size": "2GB"},
		JavaOptions:    []string{"-XX:TieredStopAtLevel=1", "-XX:NewRatio=1"},
		ClassArchive:   true,
		Progress:       func(step string) { w.log.InfoContext(ctx, step) },
	})
	if err != nil {
		return err
	}
	w.atClose(w.stack.Kill)
	w.primary = w.stack.Server()
	w.standby, err = w.stack.Standby()
	return err
}

func (w *world) prepareStack(ctx context.Context) error {
	if err := migrations.Up(ctx, w.stack.DatabaseURL(), migrations.Core, migrations.Example); err != nil {
		return err
	}
	var err error
	if w.db, err = pgxpool.New(ctx, w.stack.EitherURL()); err != nil {
		return err
	}
	w.atClose(w.db.Close)
	if _, err = w.db.Exec(ctx, tables()); err != nil {
		return fmt.Errorf("creating the tables of the kinds: %w", err)
	}
	if w.mq, err = remoting.New(remoting.Config{Nameservers: w.stack.Nameservers(), Group: "faults-reader"}); err != nil {
		return err
	}
	if err = w.mq.Start(ctx); err != nil {
		return err
	}
	w.atClose(func() { _ = w.mq.Close(context.Background()) })
	for _, topic := range append(topics(), scratchTopic) {
		if err := w.mq.CreateTopic(ctx, topic, queues); err != nil {
			return fmt.Errorf("creating topic %s: %w", topic, err)
		}
	}
	return nil
}

func (w *world) startReplicas(ctx context.Context, binary string) error {
	config := filepath.Join(w.dir, "kinds.yaml")
	if err := os.WriteFile(config, []byte(configuration()), 0o600); err != nil {
		return err
	}
	brokers, err := w.brokerAddresses(ctx)
	if err != nil {
		return err
	}
	// All replicas get their ports before the first is started, because a new process holds every open socket for an
	// instant, also one of a port that is being tried.
	for i := range replicaCount {
		r, err := w.newReplica(ctx, i, binary, config, brokers)
		if err != nil {
			return err
		}
		w.replicas = append(w.replicas, r)
		w.atClose(r.kill)
	}
	if w.foreign, err = w.newForeign(ctx, binary, config); err != nil {
		return err
	}
	w.atClose(w.foreign.kill)
	var g errgroup.Group
	for _, r := range w.replicas {
		g.Go(func() error { return r.start(ctx) })
	}
	return g.Wait()
}

// brokerAddresses returns the brokers' real addresses, by name.
func (w *world) brokerAddresses(ctx context.Context) (map[string]string, error) {
	route, err := w.mq.RefreshRoute(ctx, topics()[0])
	if err != nil {
		return nil, err
	}
	addresses := make(map[string]string)
	for _, q := range route.Queues {
		addresses[q.Broker] = q.Addr
	}
	if len(addresses) != brokerCount {
		return nil, fmt.Errorf("the name server knows %d brokers, want %d", len(addresses), brokerCount)
	}
	return addresses, nil
}

// newReplica makes a proxy for each server. The name server's proxy replaces the brokers' addresses by those of their
// proxies.
func (w *world) newReplica(ctx context.Context, i int, binary, config string, brokers map[string]string) (*replica, error) {
	r := &replica{index: i, name: fmt.Sprintf("replica-%d", i), binary: binary, links: make(map[string]*link)}
	r.log = filepath.Join(w.dir, r.name+".log")
	var err error
	if r.listen, err = freePort(ctx); err != nil {
		return nil, err
	}
	var replacements [][2][]byte
	for name, addr := range brokers {
		if r.links[name], err = w.newLink(ctx, addr, nil); err != nil {
			return nil, err
		}
		replacements = append(replacements, [2][]byte{[]byte(`"` + addr + `"`), []byte(`"` + r.links[name].addr() + `"`)})
	}
	r.links[linkNameserver], err = w.newLink(ctx, w.stack.Nameservers()[0], func(body []byte) []byte {
		for _, pair := range replacements {
			body = bytes.ReplaceAll(body, pair[0], pair[1])
		}
		return body
	})
	if err != nil {
		return nil, err
	}
	database, err := url.Parse(w.stack.DatabaseURL())
	if err != nil {
		return nil, err
	}
	if r.links[linkDatabase], err = w.newLink(ctx, database.Host, nil); err != nil {
		return nil, err
	}
	database.Host = r.links[linkDatabase].addr()
	query := database.Query()
	query.Set("pool_max_conns", "24")
	database.RawQuery = query.Encode()
	r.env = []string{
		"TXSVC_DRAIN_DELAY=1s",
		"TXSVC_LISTEN=" + r.listen, "TXSVC_DATABASE_URL=" + database.String(), "TXSVC_NAMESERVERS=" + r.links[linkNameserver].addr(),
		"TXSVC_ROCKETMQ_GROUP=" + group, "TXSVC_CONFIG=" + config, "GORACE=halt_on_error=1",
	}
	return r, nil
}

func (w *world) newLink(ctx context.Context, target string, rewrite func([]byte) []byte) (*link, error) {
	l, err := newLink(ctx, target, rewrite)
	if err == nil {
		w.atClose(l.close)
	}
	return l, err
}

func (w *world) urls() []string {
	urls := make([]string, len(w.replicas))
	for i, r := range w.replicas {
		urls[i] = r.url()
	}
	return urls
}

// unasked returns the unexpected ends of replicas, which are findings.
func (w *world) unasked() []string {
	var ends []string
	for _, r := range slices.Concat(w.replicas, []*replica{w.foreign}) {
		ends = append(ends, r.unasked()...)
	}
	return ends
}

// restartLimit is long enough for a busy machine on which the name server is away as well.
const restartLimit = 6 * time.Minute

// startBroker goes on when the suite is interrupted, like everything that starts something again, because otherwise the
// check would see a half-healed stack.
func (w *world) startBroker(i int) error { return startProcess(w.stack.Broker(i)) }

func startProcess(p *devstack.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), restartLimit)
	defer cancel()
	return p.Start(ctx)
}

// exec runs statements without the proxies. It retries, because the database may have just come back.
func (w *world) exec(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if err := retry(ctx, 10*time.Second, func() error { _, err := w.db.Exec(ctx, sql); return err }); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// retry calls try until it succeeds or the limit is reached.
func retry(ctx context.Context, limit time.Duration, try func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
		pause.For(ctx, 100*time.Millisecond)
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, strings.TrimSuffix(what, "s"))
}
