package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// actAsMain makes this test binary the command itself.
const actAsMain = "WITHSTACK_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(actAsMain) != "" {
		main()
	}
	m.Run()
}

func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), actAsMain+"=1")
	cmd.Stderr = os.Stderr
	return cmd
}

// The command finds the stack in its environment and gets withstack's signals. withstack exits with the command's code,
// and the stack ends with it.
func TestCommandBesideAStack(t *testing.T) {
	cmd := command("sh", "-c", `trap 'exit 9' TERM; echo "$`+stacktest.Env+`"; while :; do sleep 0.05; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var stack stacktest.Stack
	if err := json.Unmarshal(line, &stack); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	conn, err := pgx.Connect(t.Context(), stack.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 9 {
		t.Errorf("got %v, want exit code 9", err)
	}
	if again, err := pgx.Connect(t.Context(), stack.URL); err == nil {
		again.Close(t.Context())
		t.Error("PostgreSQL answers after the command's end")
	}
}

func TestExitCodes(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -KILL $$": 137} {
		got, err := follow(exec.Command("sh", "-c", script), nil)
		if err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", script, got, err, want)
		}
	}
	if got, err := follow(exec.Command("/does/not/exist"), nil); err == nil || got != 2 {
		t.Errorf("no such command: got %d, %v, want 2 and an error", got, err)
	}
}
