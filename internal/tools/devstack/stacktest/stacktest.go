// Package stacktest gives tests a real PostgreSQL and a real RocketMQ. It uses the stack that the environment variable
// TXSVC_TEST_STACK describes (command withstack sets it). Without that, it starts one for this test binary at the first
// use, and removes it at the end.
//
// A package that uses it has this function:
//
//	func TestMain(m *testing.M) { stacktest.With(m).Run() }
//
// or, with goleak, goleak.VerifyTestMain(stacktest.With(m)).
package stacktest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/migrations"
)

// Env is the environment variable that describes a running stack, as JSON of [Stack].
const Env = "TXSVC_TEST_STACK"

// startLimit includes the fetching of the binaries on a new machine.
const startLimit = 5 * time.Minute

// Stack describes the shared stack. Tests must not stop or pause its processes; a test that does starts a stack of its
// own with [Private].
type Stack struct {
	URL         string   `json:"database_url"`
	Nameservers []string `json:"nameservers"`
	Classpath   string   `json:"classpath"` // of RocketMQ's Java client and tools
}

// Describe returns the description of a running stack.
func Describe(s *devstack.Stack) Stack {
	return Stack{URL: s.DatabaseURL(), Nameservers: s.Nameservers(), Classpath: s.Classpath()}
}

// MQAdmin runs RocketMQ's mqadmin and returns what it prints; see devstack.MQAdmin.
func (s *Stack) MQAdmin(ctx context.Context, args ...string) (string, error) {
	return devstack.MQAdmin(ctx, s.Classpath, s.Nameservers, args...)
}

// shared is the stack of this test binary.
var shared struct {
	sync.Mutex
	stack   *Stack
	err     error
	release func() // nil before the start and after Run
}

// Runner runs the tests of a binary and then ends the stack that they used.
type Runner struct{ tests interface{ Run() int } }

// With wraps the tests of m.
func With(m *testing.M) Runner { return Runner{m} }

// Run returns the exit code of the tests, which package testing exits with by itself.
func (r Runner) Run() int {
	shared.Lock()
	shared.release = func() {}
	shared.Unlock()
	code := r.tests.Run()
	shared.Lock()
	defer shared.Unlock()
	dropMigrated()
	releaseLent()
	shared.release()
	return code
}

// Shared is the stack that all tests of the binary use. Its brokers refuse unknown
// topics, and have their default settings otherwise.
func Shared(tb testing.TB) *Stack {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.release == nil {
		tb.Fatal("stacktest: TestMain of this package does not run stacktest.With(m)")
	}
	if shared.stack == nil && shared.err == nil {
		shared.stack, shared.err = attachOrStart(tb.Context())
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.stack
}

func attachOrStart(ctx context.Context) (*Stack, error) {
	if described := os.Getenv(Env); described != "" {
		s := new(Stack)
		if err := json.Unmarshal([]byte(described), s); err != nil {
			return nil, fmt.Errorf("reading %s: %w", Env, err)
		}
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	running, release, err := StartTemporary(ctx, SharedOptions())
	if err != nil {
		return nil, err
	}
	shared.release = release
	s := Describe(running)
	return &s, nil
}

// Patient adds a setting to those of a broker, which may be nil: messages wait for 2.5 s before the broker refuses them
// as busy. The default is 0.2 s, which a machine that runs several tests at once sometimes exceeds. 2.5 s are less than
// the 3 s after which clients give up. It is for tests of other answers.
func Patient(settings map[string]string) map[string]string {
	all := map[string]string{"waitTimeMillsInSendQueue": "2500"}
	maps.Copy(all, settings)
	return all
}

// SharedOptions are those of the stack that tests share. Its broker also delivers messages at a given time.
func SharedOptions() devstack.Options {
	return devstack.Options{BrokerConfig: Patient(map[string]string{"timerWheelEnable": "true"})}
}

// StartTemporary starts a stack for tests, without syncing to disk, with a light JIT compiler and without timers in its brokers
// (see devstack.Options), unless o.BrokerConfig turns them on. If o.Dir is empty, the stack is in a new temporary directory.
// release kills it and removes the directory.
func StartTemporary(ctx context.Context, o devstack.Options) (s *devstack.Stack, release func(), err error) {
	remove := func() {}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "txsvc-stack-"); err != nil {
			return nil, nil, fmt.Errorf("making a directory for the stack: %w", err)
		}
		dir := o.Dir
		remove = func() { _ = os.RemoveAll(dir) }
	}
	if o.PostgresConfig == nil {
		o.PostgresConfig = map[string]string{"fsync": "off", "full_page_writes": "off"}
	}
	if o.JavaOptions == nil {
		o.JavaOptions = []string{"-XX:TieredStopAtLevel=1"}
	}
	o.ClassArchive, o.NoTimers, o.TimerSlack = true, true, timerSlack
	s, err = devstack.Start(ctx, o)
	if err != nil {
		remove()
		return nil, nil, err
	}
	return s, func() { s.Kill(); remove() }, nil
}

// timerSlack lets the brokers of tests, most of which are idle, leave the CPU to those that are not.
const timerSlack = 10 * time.Millisecond

// Private starts a stack for one test, which may break it; it ends with the test.
func Private(tb testing.TB, o devstack.Options) *devstack.Stack {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startLimit)
	defer cancel()
	s, release, err := StartTemporary(ctx, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(release)
	return s
}

// NewDatabase makes a database for this test only and returns its URL. The end of the test drops it, with all
// connections.
func NewDatabase(tb testing.TB) string {
	tb.Helper()
	return newDatabase(tb, "template0") // which never has connections; with connections, a copy fails
}

// migrated is the database that NewMigrated copies; empty before its first use. A copy does not have the settings that
// migrations make for the user in the database.
var migrated struct {
	sync.Mutex
	name, stackURL string
	settings       []string
}

// NewMigrated is [NewDatabase] with the tables of the service and of the example. It is a copy of one such database, which
// costs a quarter of the migrations.
func NewMigrated(tb testing.TB) string {
	tb.Helper()
	s := Shared(tb)
	migrated.Lock()
	defer migrated.Unlock()
	if migrated.name == "" {
		name := newName("template_")
		exec(tb, tb.Context(), s.URL, "create database "+name+" template template0")
		if err := migrations.Up(tb.Context(), atDatabase(tb, name), migrations.Core, migrations.Example); err != nil {
			exec(tb, tb.Context(), s.URL, "drop database "+name+" with (force)")
			tb.Fatal(err)
		}
		migrated.name, migrated.stackURL, migrated.settings = name, s.URL, settingsIn(tb, name)
	}
	return newDatabase(tb, migrated.name+" strategy file_copy", migrated.settings...)
}

// settingsIn returns what the user's sessions in a database begin with, as assignments.
func settingsIn(tb testing.TB, database string) (settings []string) {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), Shared(tb).URL)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(tb.Context())
	err = conn.QueryRow(tb.Context(), `SELECT array_agg(setting) FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase,
		unnest(setconfig) setting WHERE datname = $1 AND setrole = current_user::regrole`, database).Scan(&settings)
	if err != nil {
		tb.Fatalf("reading the settings of %s: %v", database, err)
	}
	return settings
}

// dropMigrated drops what [NewMigrated] copies: the stack may outlive the test binary.
func dropMigrated() {
	if migrated.name == "" {
		return
	}
	if err := execute(context.Background(), migrated.stackURL, "drop database "+migrated.name+" with (force)"); err != nil {
		fmt.Fprintln(os.Stderr, "stacktest:", err)
	}
}

func newName(prefix string) string { return prefix + strings.ReplaceAll(uuid.NewString(), "-", "") }

func newDatabase(tb testing.TB, template string, settings ...string) string {
	tb.Helper()
	s, name := Shared(tb), newName("test_")
	exec(tb, tb.Context(), s.URL, "create database "+name+" template "+template)
	tb.Cleanup(func() {
		exec(tb, context.Background(), s.URL, "drop database "+name+" with (force)")
	})
	for _, setting := range settings {
		exec(tb, tb.Context(), s.URL, "alter role current_user in database "+name+" set "+setting)
	}
	return atDatabase(tb, name)
}

func atDatabase(tb testing.TB, name string) string {
	tb.Helper()
	u, err := url.Parse(Shared(tb).URL)
	if err != nil {
		tb.Fatalf("parsing the stack's database URL: %v", err)
	}
	u.Path = "/" + name
	return u.String()
}

func exec(tb testing.TB, ctx context.Context, url, sql string) {
	tb.Helper()
	if err := execute(ctx, url, sql); err != nil {
		tb.Fatal(err)
	}
}

func execute(ctx context.Context, url, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connecting for %q: %w", sql, err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}
