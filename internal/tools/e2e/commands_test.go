package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// txsvc runs a command of the binary to its end, and returns what it printed, errors last.
func txsvc(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestSettingsAreRefused(t *testing.T) {
	t.Parallel()
	good := []string{"TXSVC_DATABASE_URL=postgres://x@127.0.0.1:1/x", "TXSVC_NAMESERVERS=127.0.0.1:1", "TXSVC_CONFIG=../../config/dev.yaml"}
	for name, tc := range map[string]struct {
		env  []string
		want string
	}{
		"no database":       {[]string{"TXSVC_DATABASE_URL="}, "TXSVC_DATABASE_URL is not set"},
		"bad database":      {[]string{"TXSVC_DATABASE_URL=postgres://u:hunter2@h:notaport/x"}, "TXSVC_DATABASE_URL: the database URL is not valid: invalid port"},
		"no name server":    {[]string{"TXSVC_NAMESERVERS="}, "TXSVC_NAMESERVERS is not set"},
		"bad name server":   {[]string{"TXSVC_NAMESERVERS=localhost"}, `"localhost" is not host:port`},
		"no config":         {[]string{"TXSVC_CONFIG="}, "TXSVC_CONFIG is not set"},
		"config missing":    {[]string{"TXSVC_CONFIG=no-such.yaml"}, "no-such.yaml"},
		"open to others":    {[]string{"TXSVC_LISTEN=0.0.0.0:0"}, "TXSVC_INSECURE=1"},
		"bad listen":        {[]string{"TXSVC_LISTEN=8080"}, "is not host:port"},
		"keys":              {[]string{"TXSVC_API_KEYS_FILE=keys"}, "not supported by this version"},
		"bad transport":     {[]string{"TXSVC_ROCKETMQ_TRANSPORT=pigeon"}, "native"},
		"secret without id": {[]string{"TXSVC_ROCKETMQ_SECRET_KEY=hunter2"}, "come together"},
		"bad level":         {[]string{"TXSVC_LOG_LEVEL=loud"}, "debug"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := txsvc(t, append(good, tc.env...), "serve")
			if err == nil || !strings.Contains(out, tc.want) {
				t.Errorf("got %q (%v), want an error with %q", out, err, tc.want)
			}
			if strings.Contains(out, "hunter2") {
				t.Errorf("a secret is printed: %s", out)
			}
		})
	}
}

func TestCheckConfig(t *testing.T) {
	t.Parallel()
	out, err := txsvc(t, nil, "check-config", "../../config/dev.yaml")
	if err != nil || !strings.Contains(out, "order.create") || !strings.Contains(out, "/v1/payments") {
		t.Errorf("the shipped configuration: got %q (%v)", out, err)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("kinds:\n  a:\n    topic: t\n    local: {handler: no-such}\n  b:\n    topc: t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err = txsvc(t, nil, "check-config", bad)
	if err == nil || !strings.Contains(out, "bad.yaml:6:") {
		t.Errorf("a misspelt field: got %q (%v), want an error at line 6", out, err)
	}
	if err := os.WriteFile(bad, []byte("kinds:\n  a:\n    topic: t\n    local: {handler: no-such}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err = txsvc(t, nil, "check-config", bad); err == nil || !strings.Contains(out, `"no-such"`) {
		t.Errorf("an unknown handler: got %q (%v), want an error that names it", out, err)
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	env := []string{"TXSVC_DATABASE_URL=" + stacktest.NewDatabase(t)}
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"migrate", "status"}, "missing"},
		{[]string{"migrate", "up"}, "applied"},
		{[]string{"migrate", "up"}, "applied"},
		{[]string{"migrate", "up", "--example"}, "orders"},
		{[]string{"migrate", "down", "--example"}, "missing"},
	} {
		out, err := txsvc(t, env, step.args...)
		if err != nil || !strings.Contains(out, step.want) {
			t.Errorf("txsvc %s: got %q (%v), want %q in it", strings.Join(step.args, " "), out, err, step.want)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if out, err := txsvc(t, nil, "version"); err != nil || !strings.HasPrefix(out, "txsvc ") {
		t.Errorf("got %q (%v)", out, err)
	}
}

// TestGracefulStop: a request that is in flight when SIGTERM comes is finished, and nothing new is accepted.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	release := e.hold("k")
	defer release()
	done := s.posting(slow("tx-1", "k"))
	await.Success(t, 10*time.Second, func() error {
		if s.metric(`txsvc_stage_seconds_count{kind="slow",stage="half"}`) < 1 {
			return fmt.Errorf("no half message yet")
		}
		return nil
	})
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await.Success(t, 10*time.Second, func() error {
		if _, err := s.get("tx-1"); err == nil {
			return fmt.Errorf("still accepting")
		}
		return nil
	})
	release()
	if a := <-done; a.HTTPStatus != http.StatusCreated || a.State != "committed" {
		t.Errorf("got %d %s, want a committed transaction", a.HTTPStatus, a.Raw)
	}
	<-s.done
	if !s.cmd.ProcessState.Success() {
		t.Errorf("the service ended with %s", s.cmd.ProcessState)
	}
	await.Success(t, 10*time.Second, func() error {
		if got := len(e.visible()["tx-1"]); got != 1 {
			return fmt.Errorf("tx-1 is visible %d times, want 1", got)
		}
		return nil
	})
}

// TestReadme runs the commands of README.md, docs/api.md and docs/messages.md against the stack that `make run` starts.
func TestReadme(t *testing.T) {
	t.Parallel()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	var pages strings.Builder
	for _, page := range []string{"../../../README.md", "../../../docs/api.md", "../../../docs/messages.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		pages.Write(text)
	}
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(makefile), "exec bin/txsvc dev\n") {
		t.Error("make run does not start txsvc dev")
	}
	dir := filepath.Join(t.TempDir(), ".txsvc")
	addr := startDev(t, path, dir)
	var commands []string
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(pages.String(), -1) {
		if strings.Contains(m[1], "curl") || strings.HasPrefix(m[1], "bin/txsvc tail") {
			commands = append(commands, m[1])
		}
	}
	want := []string{`"delivery":"delivered"`, "shard_key customer-7", `"state":"committed"`, `"reason":"fnv1a64(shard_key) mod 8 = 1","queues":8`, `"mode":"async"`}
	if len(commands) != len(want) {
		t.Fatalf("got %d blocks of commands, want %d", len(commands), len(want))
	}
	for i, text := range commands {
		text = strings.ReplaceAll(text, "127.0.0.1:8080", addr)
		text = strings.ReplaceAll(text, "bin/txsvc tail", "exec "+path+" tail --dir "+dir)
		if out := untilPrinted(t, text, want[i]); !strings.Contains(out, want[i]) {
			t.Errorf("%s\ngot %s, want %s in it", text, out, want[i])
		}
	}
}

// TestFlagsOfTheDocuments: each flag that a document gives to a command of txsvc is one that the command has.
func TestFlagsOfTheDocuments(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	called := regexp.MustCompile(`txsvc (verify|tail|migrate up|check-config|route accept|route|serve|dev)((?:[^\n` + "`" + `#]|\\\n)*)`)
	flag := regexp.MustCompile(`--[a-z][a-z-]+`)
	flags := map[string][]string{}
	for _, page := range append(documents, "../../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range called.FindAllStringSubmatch(string(text), -1) {
			command := m[1]
			if command == "route" {
				command = "route show" // which it is short for
			}
			flags[command] = append(flags[command], flag.FindAllString(m[2], -1)...)
		}
		if filepath.Base(page) == "verify.md" {
			flags["verify"] = append(flags["verify"], flag.FindAllString(string(text), -1)...)
		}
	}
	if len(flags) < 5 || len(flags["verify"]) < 20 {
		t.Errorf("got the flags %v, want those of at least 5 commands, and at least 20 of verify", flags)
	}
	for command, names := range flags {
		help, err := txsvc(t, nil, append(strings.Fields(command), "--help")...)
		if err != nil {
			t.Errorf("txsvc %s --help: %v", command, err)
		}
		for _, name := range names {
			if !regexp.MustCompile(name + `\b`).MatchString(help) {
				t.Errorf("a document calls txsvc %s with %s, which it does not have", command, name)
			}
		}
	}
}

// untilPrinted runs a command until it has printed the text, or has ended, and returns what it printed.
func untilPrinted(t *testing.T, command, text string) string {
	t.Helper()
	cmd := exec.Command("bash", "-ec", command)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	var printed strings.Builder
	for buffer := make([]byte, 4096); !strings.Contains(printed.String(), text); {
		n, err := out.Read(buffer)
		printed.Write(buffer[:n])
		if err != nil {
			break
		}
	}
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
	return printed.String()
}

// startDev runs txsvc dev until the test ends, and returns the address that it says it serves on.
func startDev(t *testing.T, path, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(path, append([]string{"dev", "--dir", dir, "--listen", "127.0.0.1:0"}, args...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	log := &logBuffer{addr: make(chan string, 1)}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addr := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if _, found, ok := strings.Cut(lines.Text(), "ready on http://"); ok {
				addr <- found
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("txsvc dev ended with %v\n%s", err, tail(log.String(), 3000))
		}
	})
	select {
	case a := <-addr:
		return a
	case <-read:
		t.Fatalf("txsvc dev ended: %s", log)
	case <-time.After(2 * time.Minute):
		t.Fatal("txsvc dev did not become ready")
	}
	return ""
}
