//go:build linux

package usage

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// TestTree: a tree has the time of children that run, and keeps it when they have ended.
func TestTree(t *testing.T) {
	t.Parallel()
	// The shell starts a child that works until it is told to end, and waits for it.
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `trap : TERM; /bin/sh -c 'while :; do :; done' & echo $!; wait; wait; read -r end`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	var child int
	if _, err := fmt.Fscan(out, &child); err != nil {
		t.Fatal(err)
	}
	const worked = 200 * time.Millisecond
	var running time.Duration
	await.Success(t, time.Minute, func() error {
		if running, err = Tree(cmd.Process.Pid); err != nil || running < worked {
			return fmt.Errorf("the tree has used %s, %w", running, err)
		}
		return nil
	})
	if own, err := Process(cmd.Process.Pid); err != nil || own > worked/2 {
		t.Errorf("the process without its child: got %s, %v, want less than %s", own, err, worked/2)
	}
	p, err := os.FindProcess(child)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	await.Success(t, time.Minute, func() error {
		left, err := children(cmd.Process.Pid)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there are children: %v", left)
		}
		return err
	})
	if after, err := Tree(cmd.Process.Pid); err != nil || after < running-2*tick { // user and system time are cut to ticks
		t.Errorf("after the child's end: got %s, %v, want at least the %s of before", after, err, running)
	}
}

func TestProcessThatIsGone(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := Process(cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), "CPU time") {
		t.Errorf("got the error %v", err)
	}
}
