// Package devstack runs a real PostgreSQL and a real RocketMQ (one name server, one or more brokers) as child
// processes, for `txsvc dev` and for tests.
//
// Both come as Maven artifacts and stay in a cache directory, so only the first start needs Maven and the network.
// RocketMQ needs Java 17 or newer.
//
// # Directories
//
// Options.Dir has everything that belongs to one stack: the database cluster, the brokers' stores, logs, the chosen
// ports and the database password. One stack at a time may use a directory. Any number of stacks may run in different
// directories.
//
// PostgreSQL refuses to run as root. So root runs it as an unprivileged user (nobody, unless Options.PostgresUser names
// another), which owns the cluster. When that user cannot reach Dir, for example below /root, the cluster is in a
// directory under /var/lib/txsvc, and Dir/postgres is a symbolic link to it. When Dir is gone, the next start of any
// stack removes that directory.
//
// # No orphans
//
// Every child has a guard: a small shell process with the read end of a pipe whose only write end is in this process.
// However this process ends, even by SIGKILL, the pipe closes, and the guard ends the child, first by an orderly
// signal, then by SIGKILL. A child does not begin before its guard is ready. Children run in sessions of their own, so
// that Ctrl-C in a terminal reaches only this process.
package devstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options are the options of a stack. Only Dir is required.
type Options struct {
	Dir string // state of the stack, which stays between runs; created when missing

	// Ports on 127.0.0.1; 0 chooses a free one, which the next start in Dir uses again if it is still free. A broker at
	// port p also uses p-2 and p+1. BrokerPort is the first broker's; the others' are always chosen.
	PostgresPort, NamesrvPort, BrokerPort int

	DatabaseOnly   bool              // no RocketMQ
	Brokers        int               // how many masters, default 1: broker-a, broker-b, …
	Slaves         bool              // each master has a slave, which copies it
	BrokerConfig   map[string]string // further lines of every broker.conf; they override the package's own
	PostgresConfig map[string]string // further settings of postgresql.conf; they override the package's own
	JavaOptions    []string          // further JVM options of name server and brokers

	// NoTimers turns off what brokers need for messages with a time of delivery, and most of what they need for consumers that
	// pop. They start with half of the CPU time, and take a quarter less while they are idle. They refuse such messages, and
	// cannot delete topics, because RocketMQ looks for the timers then.
	NoTimers bool

	// ClassArchive starts RocketMQ from an archive of its classes, which is made in the cache at the first such start. That
	// start takes 15 s longer; all others need half of the CPU time.
	ClassArchive bool

	// TimerSlack is by how much the timers of name server and brokers may be late, on Linux; 0 is the kernel's default,
	// 50 µs. An idle broker wakes some thousand times a second for its polls, which costs a twentieth of a core; with 10 ms
	// it wakes a hundred times, and consumers may see messages that much later.
	TimerSlack time.Duration

	// RocketMQVersion is the version of name server and brokers, from 4.9 on. Empty means the pinned one; tests use
	// others.
	RocketMQVersion string

	// PostgresUser is the unprivileged user that runs PostgreSQL when this process is root; empty means the user
	// nobody.
	PostgresUser string
	CacheDir     string // of the binaries; empty means a directory of the user's cache

	Progress func(step string) // called for each step, never concurrently; nil is silent
	Logger   *slog.Logger      // logs children that end by themselves; nil is silent
}

// Stack is a running PostgreSQL and RocketMQ. Its methods may be called
// concurrently.
type Stack struct {
	opts     Options
	dir      *stateDir
	install  *installation
	ports    ports
	password string
	server   *Server
	standby  *Server // nil: there is none
	namesrv  *Process
	brokers  []*Process
	slaves   []*Process
}

// Start runs a stack and returns when it is ready: PostgreSQL answers a query and every broker is registered in the
// name server. After an error, nothing is running. ctx bounds only the start; it does not end the stack later.
func Start(ctx context.Context, o Options) (*Stack, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("devstack: %w", err)
	}
	s, err := start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("devstack: %w", err)
	}
	return s, nil
}

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("no directory given")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("resolving %s: %w", o.Dir, err)
	}
	o.Dir = dir
	o.Brokers = max(o.Brokers, 1)
	if o.Brokers > 26 {
		return o, fmt.Errorf("%d brokers asked for, at most 26 are possible", o.Brokers)
	}
	if o.PostgresUser == "" {
		o.PostgresUser = "nobody"
	}
	if o.RocketMQVersion == "" {
		o.RocketMQVersion = RocketMQVersion
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func start(ctx context.Context, o Options) (*Stack, error) {
	owner, err := clusterOwner(o.PostgresUser)
	if err != nil {
		return nil, err
	}
	java, version, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	inst, err := install(ctx, o, java, version, owner)
	if err != nil {
		return nil, err
	}
	dir, err := openStateDir(ctx, o.Dir, o.Progress)
	if err != nil {
		return nil, err
	}
	s := &Stack{opts: o, dir: dir, install: inst}
	if err := s.run(ctx, owner); err != nil {
		dir.close()
		return nil, err
	}
	return s, nil
}

// run starts the processes. When another process has taken one of the chosen ports meanwhile, run starts them again
// with other ports.
func (s *Stack) run(ctx context.Context, owner *owner) error {
	cluster, err := prepareCluster(ctx, s, owner)
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		if s.ports, err = s.dir.choosePorts(s.opts); err != nil {
			return err
		}
		s.define(cluster)
		err = s.startAll(ctx)
		if err == nil {
			return s.dir.keepPorts(s.ports)
		}
		s.killAll()
		if attempt == 3 || !errors.Is(err, errPortTaken) || ctx.Err() != nil {
			return err
		}
		s.opts.Progress("a chosen port was taken meanwhile: choosing others")
	}
}

func (s *Stack) define(c *cluster) {
	s.server = &Server{Process: s.newProcess(postgresSpec(s, c, s.ports.Postgres)), stack: s, cluster: c, port: s.ports.Postgres}
	if s.namesrv, s.brokers, s.slaves = nil, nil, nil; s.opts.DatabaseOnly {
		return
	}
	s.namesrv = s.newProcess(namesrvSpec(s))
	for i := range s.opts.Brokers {
		s.brokers = append(s.brokers, s.newProcess(brokerSpec(s, i, nil)))
		if s.opts.Slaves {
			s.slaves = append(s.slaves, s.newProcess(slaveSpec(s, i)))
		}
	}
}

func (s *Stack) startAll(ctx context.Context) error {
	began := time.Now()
	warnOfFullDisk(s.opts)
	s.opts.Progress("starting PostgreSQL " + PostgresVersion + " and RocketMQ " + s.opts.RocketMQVersion)
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range s.processes() {
		group.Go(func() error { return p.Start(ctx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.opts.Progress(fmt.Sprintf("PostgreSQL on 127.0.0.1:%d and RocketMQ on 127.0.0.1:%d are ready after %.1f s",
		s.ports.Postgres, s.ports.Namesrv, time.Since(began).Seconds()))
	return nil
}

func (s *Stack) processes() []*Process {
	all := s.servers()
	if s.namesrv != nil {
		all = append(all, s.namesrv)
	}
	return slices.Concat(all, s.brokers, s.slaves)
}

// servers returns the PostgreSQL servers.
func (s *Stack) servers() []*Process {
	if s.standby == nil {
		return []*Process{s.server.Process}
	}
	return []*Process{s.server.Process, s.standby.Process}
}

func (s *Stack) killAll() {
	for _, p := range s.processes() {
		p.Kill()
	}
}

// Heal resumes what is paused and starts what does not run. It returns when all of the stack is ready.
func (s *Stack) Heal(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range s.processes() {
		group.Go(func() error { return p.heal(ctx) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("devstack: %w", err)
	}
	return nil
}

// Stop ends the stack in order: PostgreSQL writes a checkpoint, and the brokers close their stores, which takes about
// 12 s. When ctx ends earlier, the remaining processes are killed. That loses no message and no committed row, but the
// consumer offsets of the last 5 s. Data stays in Dir.
func (s *Stack) Stop(ctx context.Context) error {
	group := new(errgroup.Group)
	for _, p := range slices.Concat(s.servers(), s.brokers, s.slaves) {
		group.Go(func() error { return p.Stop(ctx) })
	}
	err := group.Wait()
	if s.namesrv != nil {
		s.namesrv.Kill() // its brokers register again, so it has nothing to store
	}
	s.dir.close()
	if err != nil {
		return fmt.Errorf("devstack: %w", err)
	}
	return nil
}

// Kill ends the stack at once by SIGKILL. It is for stacks whose data is not needed.
func (s *Stack) Kill() {
	s.killAll()
	s.dir.close()
}

// DatabaseURL returns the URL of the database txsvc, with its password.
func (s *Stack) DatabaseURL() string { return s.server.DatabaseURL() }

// Nameservers returns the address of the name server.
func (s *Stack) Nameservers() []string {
	return []string{fmt.Sprintf("127.0.0.1:%d", s.ports.Namesrv)}
}

// Classpath returns the Java class path of RocketMQ's server, client and tools.
func (s *Stack) Classpath() string { return s.install.classpath }

// MQAdmin runs RocketMQ's mqadmin and returns what it prints; see [MQAdmin].
func (s *Stack) MQAdmin(ctx context.Context, args ...string) (string, error) {
	return MQAdmin(ctx, s.Classpath(), s.Nameservers(), args...)
}

// Postgres returns the process of the database server.
func (s *Stack) Postgres() *Process { return s.server.Process }

// Namesrv returns the name server. Its Start returns when the name server knows every broker again that runs and is not
// paused.
func (s *Stack) Namesrv() *Process { return s.namesrv }

// Broker returns the i-th broker, from 0; its name is [BrokerName](i).
func (s *Stack) Broker(i int) *Process { return s.brokers[i] }

// Slave returns the slave of the i-th broker, if Options.Slaves is set. A master waits for its slave if it is a
// SYNC_MASTER with inSyncReplicas=2. After its start a slave may need 15 s to find its master and copy messages.
func (s *Stack) Slave(i int) *Process { return s.slaves[i] }

// Dir returns the stack's directory. The logs are in its directory log.
func (s *Stack) Dir() string { return s.opts.Dir }
