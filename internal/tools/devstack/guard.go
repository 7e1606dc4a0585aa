package devstack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// waitForGo is the first program of a child. It becomes the real program once a line arrives, and ends if its parent
// dies before that.
const waitForGo = `read -r go || exit 1; exec "$@" </dev/null`

// guardScript ends process $1 once its own standard input closes without a line: signal $2 at once, signal $3 after 5
// s, SIGKILL after 12 s. SIGCONT makes a paused process see the signal. A zombie counts as ended, because it stays one
// for ever where process 1 does not reap, as in many containers.
const guardScript = `
trap '' HUP INT QUIT TERM
if read -r dismissed; then exit 0; fi
lives() {
  kill -0 "$1" || return 1
  [ -r "/proc/$1/stat" ] || return 0
  read -r pid name state rest <"/proc/$1/stat" && [ "$state" != Z ]
}
kill -"$2" "$1"; kill -CONT "$1"
tenths=0
while lives "$1" && [ "$tenths" -lt 150 ]; do
  tenths=$((tenths + 1))
  [ "$tenths" -eq 50 ] && kill -"$3" "$1"
  [ "$tenths" -ge 120 ] && kill -KILL "$1"
  sleep 0.1
done 2>/dev/null
`

// guard ends a child when this process dies; see the package comment.
type guard struct {
	cmd  *exec.Cmd
	line *os.File // the write end, which only this process has
}

// newGuard makes a guard of pid. lock is a locked file that stays locked as long as the guard lives, so that a later
// run knows that a child may still be there.
func newGuard(pid int, first, second syscall.Signal, lock *os.File) (*guard, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("opening the guard's pipe: %w", err)
	}
	defer read.Close()
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", guardScript, "txsvc-guard",
		strconv.Itoa(pid), signalNumber(first), signalNumber(second))
	cmd.Dir = "/"
	cmd.Stdin = read
	cmd.ExtraFiles = []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = write.Close()
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	return &guard{cmd: cmd, line: write}, nil
}

// dismiss ends the guard without touching the child, and waits for it.
func (g *guard) dismiss() {
	_, _ = g.line.WriteString("dismissed\n") // the guard may be dead
	_ = g.line.Close()
	_ = g.cmd.Wait()
}

func signalNumber(s syscall.Signal) string { return strconv.Itoa(int(s)) }

// launch starts the child of sp with a guard. The child becomes the program only when the guard is ready, so it never
// outlives this process.
func launch(sp spec, lock *os.File) (*running, error) {
	out, err := os.OpenFile(sp.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening its log: %w", err)
	}
	defer out.Close()
	info, err := out.Stat()
	if err != nil {
		return nil, fmt.Errorf("opening its log: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("opening its pipe: %w", err)
	}
	defer read.Close()
	defer write.Close() // without a line: the child ends
	cmd := exec.CommandContext(context.Background(), "/bin/sh", append([]string{"-c", waitForGo, sp.name}, sp.args...)...)
	cmd.Dir, cmd.Env = sp.dir, sp.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = read, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: sp.owner.credential()}
	if err := withTimerSlack(sp.timerSlack, cmd.Start); err != nil {
		return nil, err
	}
	g, err := newGuard(cmd.Process.Pid, sp.orderly, sp.immediate, lock)
	if err != nil {
		_ = write.Close()
		_ = cmd.Wait()
		return nil, err
	}
	r := &running{cmd: cmd, guard: g, logFrom: info.Size(), done: make(chan struct{})}
	if _, err := write.WriteString("go\n"); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		g.dismiss()
		return nil, fmt.Errorf("releasing it: %w", err)
	}
	return r, nil
}
