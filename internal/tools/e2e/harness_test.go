package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/migrations"
)

// cleanups run when all tests have.
var (
	cleanupMu sync.Mutex
	cleanups  []func()
)

func atEnd(f func()) {
	cleanupMu.Lock()
	defer cleanupMu.Unlock()
	cleanups = append(cleanups, f)
}

func cleanUp() {
	for _, f := range cleanups {
		f()
	}
}

// binary builds the service once, with failpoints, which only tests have.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "txsvc-e2e-*")
	if err != nil {
		return "", err
	}
	atEnd(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "txsvc")
	return path, build(path, "-tags", "failpoints", "github.com/txsvc/txsvc/cmd/txsvc")
})

// build makes a program without the race detector, which the packages' own tests and the fault suite have: it would double
// the CPU time of the service.
func build(path string, args ...string) error {
	all := []string{"build", "-race=false", "-o", path}
	if out, err := exec.Command("go", append(all, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

const (
	queues       = 4
	readyTimeout = 30 * time.Second
)

// env is what one test works in: a database, a topic, a producer group and a configuration of its own.
type env struct {
	t           *testing.T
	databaseURL string
	nameservers []string
	group       string
	topic       string
	config      string
	transport   string
	binary      string // empty: that of cmd/txsvc
	mq          *remoting.Client
	db          *pgxpool.Pool
}

// newEnv makes one on the stack that the tests share.
func newEnv(t *testing.T) *env {
	t.Helper()
	return newEnvOn(t, stacktest.NewMigrated(t), stacktest.Shared(t).Nameservers)
}

// newEnvMigrating makes one on a database that is not migrated yet.
func newEnvMigrating(t *testing.T, databaseURL string, nameservers []string) *env {
	t.Helper()
	if err := migrations.Up(t.Context(), databaseURL, migrations.Core, migrations.Example); err != nil {
		t.Fatal(err)
	}
	return newEnvOn(t, databaseURL, nameservers)
}

func newEnvOn(t *testing.T, databaseURL string, nameservers []string) *env {
	t.Helper()
	name := "t" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
	e := &env{
		t: t, databaseURL: databaseURL, nameservers: nameservers, group: "g-" + name, topic: "orders-" + name, transport: "native",
	}
	ctx := t.Context()
	var err error
	if e.db, err = pgxpool.New(ctx, databaseURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.db.Close)
	e.mq, err = remoting.New(remoting.Config{Nameservers: nameservers, Group: "reader-" + name})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.mq.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.mq.Close(context.Background()) })
	if err := e.mq.CreateTopic(ctx, e.topic, queues); err != nil {
		t.Fatal(err)
	}
	e.config = e.writeConfig(fmt.Sprintf(`
kinds:
  order.create:
    path: /v1/orders
    topic: %[1]s
    tag: created
    local: {handler: orders}
  payment.capture:
    topic: %[1]s
    local:
      sql: |
        INSERT INTO payments (id, order_id, amount_minor, currency)
        VALUES (@id, @payload->>'order_id', (@payload->'amount_minor')::bigint, @payload->>'currency')
        RETURNING id, amount_minor
  slow:
    topic: %[1]s
    timeout: 20s
    local:
      sql: |
        SELECT pg_advisory_xact_lock(hashtext(@shard_key))
`, e.topic))
	return e
}

func (e *env) writeConfig(text string) string {
	path := filepath.Join(e.t.TempDir(), "txsvc.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
	return path
}

// service is a running txsvc.
type service struct {
	t    *testing.T
	url  string
	cmd  *exec.Cmd
	log  *logBuffer
	done chan struct{} // closed when the process has ended
}

// logBuffer keeps what the process says, and finds the address in it.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	addr chan string
	told bool
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Write(p)
	if !b.told {
		if _, rest, ok := strings.Cut(b.text.String(), `"msg":"serving","address":"`); ok {
			if addr, _, ok := strings.Cut(rest, `"`); ok {
				b.told = true
				b.addr <- addr
			}
		}
	}
	return len(p), nil
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// start runs the service and waits until it accepts requests. Extra variables have the form NAME=value.
func (e *env) start(extra ...string) *service {
	e.t.Helper()
	path, err := e.binary, error(nil)
	if path == "" {
		path, err = binary()
	}
	if err != nil {
		e.t.Fatal(err)
	}
	s := &service{t: e.t, cmd: exec.Command(path, "serve"), log: &logBuffer{addr: make(chan string, 1)}, done: make(chan struct{})}
	s.cmd.Env = append(os.Environ(),
		"TXSVC_LISTEN=127.0.0.1:0", "TXSVC_DRAIN_DELAY=0s", "TXSVC_DATABASE_URL="+e.databaseURL, "TXSVC_NAMESERVERS="+strings.Join(e.nameservers, ","),
		"TXSVC_ROCKETMQ_GROUP="+e.group, "TXSVC_CONFIG="+e.config, "TXSVC_ROCKETMQ_TRANSPORT="+e.transport, "GORACE=halt_on_error=1")
	s.cmd.Env = append(s.cmd.Env, extra...)
	s.cmd.Stderr = s.log
	if err := s.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	go func() { _ = s.cmd.Wait(); close(s.done) }()
	e.t.Cleanup(func() {
		s.kill()
		if e.t.Failed() {
			e.t.Logf("log of the service:\n%s", tail(s.log.String(), 6000))
		}
	})
	select {
	case addr := <-s.log.addr:
		s.url = "http://" + addr
	case <-s.done:
		e.t.Fatalf("the service ended: %s", s.log)
	case <-time.After(readyTimeout):
		e.t.Fatalf("the service did not begin to serve: %s", s.log)
	}
	return s
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// ready waits until /readyz says 200.
func (s *service) ready() *service {
	s.t.Helper()
	var last string
	await.Success(s.t, readyTimeout, func() error {
		response, err := http.Get(s.url + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		last = string(body)
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz: %d %s", response.StatusCode, last)
		}
		return err
	})
	return s
}

const (
	stopSignal = syscall.SIGSTOP
	contSignal = syscall.SIGCONT
)

func (s *service) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
	if sig == stopSignal {
		await.Success(s.t, readyTimeout, s.stands)
	}
}

// stands tells whether every thread has stopped: on a loaded machine some still run a while after the signal.
func (s *service) stands() error {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.cmd.Process.Pid))
	if err != nil {
		return err
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		if _, rest, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(rest, "T") {
			return fmt.Errorf("a thread still runs: %s", stat)
		}
	}
	return nil
}

func (s *service) kill() {
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	_ = s.cmd.Process.Kill()
	<-s.done
}

// awaitDeath waits until a failpoint has killed the process.
func (s *service) awaitDeath() {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(30 * time.Second):
		s.t.Fatal("the process did not die at its failpoint: fewer requests came to it than planned")
	}
}

// stop ends the service as an operator does, and fails the test when it does not end cleanly.
func (s *service) stop() {
	s.t.Helper()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
		if !s.cmd.ProcessState.Success() {
			s.t.Errorf("the service ended with %s\n%s", s.cmd.ProcessState, tail(s.log.String(), 3000))
		}
	case <-time.After(30 * time.Second):
		s.t.Fatal("the service did not end on SIGTERM")
	}
}

// answer is a response of the API.
type answer struct {
	HTTPStatus int
	ID         string          `json:"id"`
	State      string          `json:"state"`
	Delivery   string          `json:"delivery"`
	MessageID  string          `json:"message_id"`
	Queue      queue           `json:"queue"`
	Result     json.RawMessage `json:"result"`
	Replayed   bool            `json:"replayed"`
	Code       string          `json:"code"`
	Detail     string          `json:"detail"`
	Raw        string          `json:"-"`
}

type queue struct {
	Broker string `json:"broker"`
	ID     int    `json:"id"`
}

// order is the body of a request for one order.
func order(id, shardKey string) string {
	idField := ""
	if id != "" {
		idField = fmt.Sprintf(`"id": %q, `, id)
	}
	return fmt.Sprintf(`{%s"shard_key": %q, "payload": {"customer": %q, "currency": "EUR", "items": [{"sku": "tea", "quantity": 2, "amount_minor": 450}]}}`,
		idField, shardKey, shardKey)
}

// posting sends one transaction, and returns a channel that gets its answer.
func (s *service) posting(body string) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		a, err := s.post("/v1/transactions", body)
		if err != nil {
			s.t.Error(err)
		}
		done <- a
	}()
	return done
}

// post sends one request. Errors are those of the connection.
func (s *service) post(path, body string) (answer, error) {
	client := &http.Client{Timeout: 40 * time.Second}
	response, err := client.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	return read(response)
}

func (s *service) get(id string) (answer, error) {
	response, err := http.Get(s.url + "/v1/transactions/" + id)
	if err != nil {
		return answer{}, err
	}
	return read(response)
}

func read(response *http.Response) (answer, error) {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	if err := checkContract(response, body); err != nil {
		return answer{}, err
	}
	a := answer{}
	err = json.Unmarshal(body, &a)
	a.HTTPStatus, a.Raw = response.StatusCode, string(body)
	return a, err
}

func (s *service) mustPost(path, body string, status int) answer {
	s.t.Helper()
	a, err := s.post(path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	if a.HTTPStatus != status {
		s.t.Fatalf("POST %s: got %d %s, want %d", path, a.HTTPStatus, a.Raw, status)
	}
	return a
}

// visible reads the whole topic as a consumer would, and returns the messages by transaction id. A broker that was just
// restarted may have to be connected to first.
func (e *env) visible() map[string][]remoting.Message {
	e.t.Helper()
	var found map[string][]remoting.Message
	await.Success(e.t, 30*time.Second, func() (err error) {
		found, err = e.readTopic()
		return err
	})
	return found
}

func (e *env) readTopic() (map[string][]remoting.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	found := make(map[string][]remoting.Message)
	route, err := e.mq.RefreshRoute(ctx, e.topic)
	if err != nil {
		return nil, err
	}
	for _, q := range route.Queues {
		for id := range q.Read {
			if err := e.readQueue(ctx, q.Broker, id, found); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

func (e *env) readQueue(ctx context.Context, broker string, id int, into map[string][]remoting.Message) error {
	end, err := e.mq.MaxOffset(ctx, broker, e.topic, id)
	if err != nil {
		return err
	}
	for offset := int64(0); offset < end; {
		result, err := e.mq.Pull(ctx, broker, "reader", e.topic, id, offset, 32, 0)
		if err != nil {
			return err
		}
		if len(result.Messages) == 0 && result.NextOffset <= offset {
			return errors.New("a queue ends before its end")
		}
		for _, m := range result.Messages {
			txID := m.Properties.Get("TX_ID")
			into[txID] = append(into[txID], m)
		}
		offset = result.NextOffset
	}
	return nil
}

// committed returns the ids of all committed rows, with what they say of the delivery; and it checks that each has its
// order, and each order its row.
func (e *env) committed() map[string]string {
	e.t.Helper()
	rows, err := e.db.Query(context.Background(), `SELECT coalesce(t.id, o.id), coalesce(t.state, 'no row'), coalesce(t.delivery, ''), o.id IS NOT NULL
		FROM (SELECT * FROM txsvc.current WHERE kind = 'order.create') t FULL JOIN orders o ON o.id = t.id`)
	if err != nil {
		e.t.Fatal(err)
	}
	defer rows.Close()
	found := make(map[string]string)
	for rows.Next() {
		var id, state, delivery string
		var business bool
		if err := rows.Scan(&id, &state, &delivery, &business); err != nil {
			e.t.Fatal(err)
		}
		if business != (state == "committed") {
			e.t.Errorf("transaction %s: state %s, order there: %t", id, state, business)
		}
		if state == "committed" {
			found[id] = delivery
		}
	}
	if err := rows.Err(); err != nil {
		e.t.Fatal(err)
	}
	return found
}

// settle waits until every committed row is delivered, and then checks that exactly the committed transactions are
// visible, each once.
func (e *env) settle(limit time.Duration) (committed int) {
	e.t.Helper()
	await.Success(e.t, limit, func() error {
		pending := 0
		rows := e.committed()
		for _, delivery := range rows {
			if delivery != "delivered" {
				pending++
			}
		}
		committed = len(rows)
		if pending > 0 {
			return fmt.Errorf("%d of %d committed transactions are not delivered", pending, committed)
		}
		return nil
	})
	e.compare()
	return committed
}

// compare checks committed = visible, once each. The broker shows a message to consumers some milliseconds after it has
// confirmed it, longer under load: that long a message may be missing.
func (e *env) compare() {
	e.t.Helper()
	rows := e.committed()
	var messages map[string][]remoting.Message
	await.Success(e.t, 10*time.Second, func() error {
		messages = e.visible()
		for id := range rows {
			if len(messages[id]) == 0 {
				return fmt.Errorf("transaction %s is committed, delivered and not visible", id)
			}
		}
		return nil
	})
	for id := range rows {
		if got := len(messages[id]); got != 1 {
			e.t.Errorf("transaction %s is committed and visible %d times, want 1", id, got)
		}
	}
	for id, copies := range messages {
		if _, ok := rows[id]; !ok {
			e.t.Errorf("transaction %s of kind %s is visible %d times and not committed", id, copies[0].Properties.Get("TX_KIND"), len(copies))
		}
	}
}
