package devstack_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// Data is still there after an orderly stop and a start in the same directory, at the same ports, with PostgreSQL's
// default durability.
func TestDataIsKeptOverARestart(t *testing.T) {
	t.Parallel()
	var steps []string
	o := fast(tempDir(t))
	o.PostgresConfig, o.Progress = nil, func(step string) { steps = append(steps, step) }
	s := startStack(t, o)
	url, nameservers := s.DatabaseURL(), s.Nameservers()
	if len(steps) < 2 {
		t.Errorf("got %d progress steps: %q, want some", len(steps), steps)
	}
	if got := mustQuery[string](t, url, "show fsync"); got != "on" {
		t.Errorf("got fsync %s, want on", got)
	}
	exec(t, url, "create table kept as select 42 as n")
	mqadmin(t, s, "updateTopic", "-c", "DefaultCluster", "-t", "kept", "-r", "4", "-w", "4")
	sent := send(t, s, "-t", "kept", "-p", "body", "-k", "key-1")

	stop(t, s)
	if err := s.Stop(within(t, time.Second)); err != nil {
		t.Errorf("stopping again: got %v, want nil", err)
	}
	plantPidFile(t, filepath.Join(o.Dir, "postgres", "data"))
	s = startStack(t, o)
	if s.DatabaseURL() != url || !reflect.DeepEqual(s.Nameservers(), nameservers) {
		t.Errorf("got %s and %v, want %s and %v as before", s.DatabaseURL(), s.Nameservers(), url, nameservers)
	}
	if got := mustQuery[int](t, url, "select n from kept"); got != 42 {
		t.Errorf("got %d, want 42", got)
	}
	fields := strings.Fields(sent)
	id := fields[len(fields)-1]
	if found := mqadmin(t, s, "queryMsgByKey", "-t", "kept", "-k", "key-1"); !strings.Contains(found, id) {
		t.Errorf("got %q for the message's key, want its id %s", found, id)
	}
}

// plantPidFile writes the pid file of a killed PostgreSQL, with a process id that belongs to another process of its
// user by now.
func plantPidFile(t *testing.T, data string) {
	t.Helper()
	info, err := os.Stat(data)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	cmd := osexec.Command("sleep", "600")
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := fmt.Sprintf("%d\n%s\n1700000000\n5432\n\n127.0.0.1\n", cmd.Process.Pid, data)
	if err := os.WriteFile(filepath.Join(data, "postmaster.pid"), []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
}

func exec(t *testing.T, url, sql string) {
	t.Helper()
	ctx := within(t, 10*time.Second)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// stop stops in order and checks that nothing is left.
func stop(t *testing.T, s *devstack.Stack) {
	t.Helper()
	parts := []*devstack.Process{s.Postgres(), s.Namesrv(), s.Broker(0)}
	var pids []int
	for _, p := range parts {
		pids = append(pids, p.PID())
	}
	if err := s.Stop(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	for i, p := range parts {
		if p.PID() != 0 || devstack.Lives(pids[i]) {
			t.Errorf("process %d lives after Stop", pids[i])
		}
	}
}

// Each part is broken in each way and comes back with all committed data.
func TestPartsCanBeBroken(t *testing.T) {
	t.Parallel()
	s := startStack(t, fast(tempDir(t)))
	t.Run("second run", func(t *testing.T) { refuseSecondRun(t, s) })
	t.Run("postgres", func(t *testing.T) { breakPostgres(t, s) })
	t.Run("broker", func(t *testing.T) { breakBroker(t, s) })
	t.Run("name server", func(t *testing.T) { breakNamesrv(t, s) })
}

func breakPostgres(t *testing.T, s *devstack.Stack) {
	pg, url := s.Postgres(), s.DatabaseURL()
	exec(t, url, "create table broken (how text)")
	session, err := pgx.Connect(within(t, 10*time.Second), url)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	var backend int
	if err := session.QueryRow(t.Context(), "select pg_backend_pid()").Scan(&backend); err != nil {
		t.Fatal(err)
	}
	t.Run("pause", func(t *testing.T) {
		pg.Pause()
		asked := make(chan error, 1)
		go func() { _, err := session.Exec(context.Background(), "select 1"); asked <- err }()
		if v, err := query[int](t, within(t, 300*time.Millisecond), url, "select 1"); err == nil {
			t.Errorf("got %d from a paused PostgreSQL, want no answer", v)
		}
		select {
		case err := <-asked:
			t.Errorf("a session of a paused PostgreSQL answered (%v)", err)
		default:
		}
		pg.Resume()
		if err := <-asked; err != nil {
			t.Errorf("after the pause: %v", err)
		}
	})
	t.Run("port taken", func(t *testing.T) { portTaken(t, pg, session.Config().Host+":"+fmt.Sprint(session.Config().Port)) })
	ways := map[string]func() error{
		"kill":              func() error { pg.Kill(); return nil },
		"immediate":         func() error { return pg.StopImmediate(within(t, 10*time.Second)) },
		"orderly":           func() error { return pg.Stop(within(t, 10*time.Second)) },
		"kill while paused": func() error { pg.Pause(); pg.Kill(); return nil },
		"stop while paused": func() error { pg.Pause(); return pg.Stop(within(t, 10*time.Second)) },
	}
	for how, end := range ways {
		t.Run(how, func(t *testing.T) {
			exec(t, url, "insert into broken values ('"+how+"')")
			if err := end(); err != nil {
				t.Fatal(err)
			}
			await.True(t, 30*time.Second, "the session's backend is gone", func() bool { return !devstack.Lives(backend) })
			if err := pg.Start(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			if got := mustQuery[int](t, url, "select count(*) from broken where how = '"+how+"'"); got != 1 {
				t.Errorf("got %d rows committed before, want 1", got)
			}
		})
	}
}

func breakBroker(t *testing.T, s *devstack.Stack) {
	broker := s.Broker(0)
	addr := brokers(t, s)["broker-a"]
	t.Run("pause", func(t *testing.T) {
		broker.Pause()
		if answers(addr) {
			t.Error("a paused broker answered")
		}
		broker.Resume()
		await.True(t, 30*time.Second, "the broker answers", func() bool { return answers(addr) })
	})
	t.Run("kill", func(t *testing.T) {
		was := broker.PID()
		broker.Kill()
		if answers(addr) {
			t.Error("a killed broker answered")
		}
		if err := broker.Start(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if broker.PID() == was {
			t.Errorf("got process %d, want another one", was)
		}
		awaitAddress(t, s, addr)
		if err := broker.Start(within(t, time.Second)); err == nil || !strings.Contains(err.Error(), "runs already") {
			t.Errorf("starting it twice: got %v, want an error that says that it runs", err)
		}
	})
	t.Run("stop", func(t *testing.T) {
		if err := broker.Stop(within(t, 30*time.Second)); err != nil {
			t.Fatal(err)
		}
		awaitAddress(t, s, "")
		if err := broker.Start(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("port taken", func(t *testing.T) { portTaken(t, broker, addr) })
	t.Run("stop in no time", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := broker.Stop(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want an error that says that it was killed", err)
		}
		if broker.PID() != 0 {
			t.Error("it runs")
		}
		if err := broker.Start(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
	})
}

// portTaken kills the process, takes one of its ports, and expects a start to report that.
func portTaken(t *testing.T, p *devstack.Process, addr string) {
	t.Helper()
	p.Kill()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Start(within(t, time.Minute))
	if err == nil || !strings.Contains(err.Error(), "port taken") {
		t.Errorf("with %s in use: got %v, want an error that says so", addr, err)
	}
	if p.PID() != 0 {
		t.Error("it runs after an error of its start")
	}
	l.Close()
	if err := p.Start(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
}

func breakNamesrv(t *testing.T, s *devstack.Stack) {
	namesrv, addr := s.Namesrv(), brokers(t, s)["broker-a"]
	namesrv.Kill()
	if answers(s.Nameservers()[0]) {
		t.Error("a killed name server answered")
	}
	if err := namesrv.Start(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	awaitAddress(t, s, addr)
	portTaken(t, namesrv, s.Nameservers()[0])
	s.Broker(0).Pause()
	defer s.Broker(0).Resume()
	namesrv.Kill()
	if err := namesrv.Start(within(t, time.Minute)); err != nil {
		t.Errorf("with a paused broker: %v", err)
	}
}

// awaitAddress waits until the name server knows the broker at the address, or, when it is empty, not at all. A name server
// forgets on a thread of its own; and a broker that is too slow to answer while a name server starts is not waited for
// there, but reports itself within 10 s.
func awaitAddress(t *testing.T, s *devstack.Stack, addr string) {
	t.Helper()
	await.True(t, time.Minute, fmt.Sprintf("the name server has the address %q for broker-a", addr), func() bool {
		return brokers(t, s)["broker-a"] == addr
	})
}

func TestSeveralBrokersAndStacks(t *testing.T) {
	t.Parallel()
	o := fast(tempDir(t))
	o.Brokers = 2
	o.BrokerConfig = map[string]string{"transactionCheckInterval": "1000"}
	s := startStack(t, o)
	odd := tempDir(t)
	if err := os.Chmod(odd, 0o755); err != nil { // so that root's cluster is inside
		t.Fatal(err)
	}
	other := startStack(t, fast(filepath.Join(odd, "with spaces, ü and \\")))
	known := brokers(t, s)
	if len(known) != 2 || known["broker-a"] == "" || known["broker-b"] == "" {
		t.Errorf("got brokers %v, want broker-a and broker-b", known)
	}
	if got := brokers(t, other); len(got) != 1 || got["broker-a"] == known["broker-a"] {
		t.Errorf("got brokers %v, want the other stack's own", got)
	}
	config, err := ask(known["broker-b"], 26)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"transactionCheckInterval=1000", "transactionTimeOut=6000", "transactionCheckMax=15",
		"autoCreateTopicEnable=false", "maxMessageSize=4194304"} {
		if !strings.Contains(config, want+"\n") {
			t.Errorf("the broker's configuration lacks %s", want)
		}
	}
	assertClassArchive(t, s.Namesrv(), s.Broker(0), other.Broker(0))
	reconfigure(t, s, known["broker-b"])
}

// assertClassArchive: the JVM maps the archive of its classes, which it does not where the archive is another Java's.
func assertClassArchive(t *testing.T, processes ...*devstack.Process) {
	t.Helper()
	for _, p := range processes {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID()))
		if err == nil && !strings.Contains(string(maps), "Startup.jsa") { // there is none but on Linux
			t.Errorf("process %d does not use the archive of its classes", p.PID())
		}
	}
}

// reconfigure changes a broker, and undoes that.
func reconfigure(t *testing.T, s *devstack.Stack, addr string) {
	for _, step := range []struct {
		config map[string]string
		env    []string
		max    string
		inEnv  bool
	}{
		{map[string]string{"transactionCheckMax": "3"}, []string{"MARK=set"}, "3", true},
		{nil, nil, "15", false},
	} {
		s.ReconfigureBroker(1, step.config, step.env)
		s.Broker(1).Kill()
		if err := s.Broker(1).Start(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		config, err := ask(addr, 26)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"transactionCheckInterval=1000", "transactionCheckMax=" + step.max} {
			if !strings.Contains(config, want+"\n") {
				t.Errorf("the configuration lacks %s", want)
			}
		}
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.Broker(1).PID()))
		if err == nil && strings.Contains(string(env), "MARK=set") != step.inEnv { // there is none but on Linux
			t.Errorf("its environment has the variable: %t, want %t", !step.inEnv, step.inEnv)
		}
	}
}

func refuseSecondRun(t *testing.T, s *devstack.Stack) {
	_, err := devstack.Start(within(t, time.Minute), fast(s.Dir()))
	want := fmt.Sprintf("%s is in use by another run (process %d)", s.Dir(), os.Getpid())
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if got := mustQuery[int](t, s.DatabaseURL(), "select 1"); got != 1 {
		t.Errorf("the first run: got %d, want 1", got)
	}
}

func TestConfiguredPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := fast(tempDir(t))
	o.PostgresPort = l.Addr().(*net.TCPAddr).Port
	_, err = devstack.Start(within(t, time.Minute), o)
	want := fmt.Sprintf("the port %d of PostgreSQL is in use", o.PostgresPort)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// A start that fails leaves nothing running, and its error has the process's output.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	o := fast(tempDir(t))
	o.PostgresConfig = map[string]string{"no_such_setting": "1"}
	_, err := devstack.Start(within(t, time.Minute), o)
	if err == nil || !strings.Contains(err.Error(), `unrecognized configuration parameter "no_such_setting"`) {
		t.Errorf("got %v, want PostgreSQL's own words", err)
	}
	if left := processesIn(t, o.Dir); len(left) > 0 {
		t.Errorf("left running: %q", left)
	}
}

// processesIn returns the command lines that name the directory.
func processesIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, file := range files {
		line, _ := os.ReadFile(file) // it may have ended
		if strings.Contains(string(line), dir) {
			lines = append(lines, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return lines
}
