package devstack

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// setupProcess makes a process of a shell script. It is ready once the script has
// written "ready".
func setupProcess(t *testing.T, script string, logger *slog.Logger) *Process {
	t.Helper()
	dir := t.TempDir()
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{lock: lock, logger: logger, spec: spec{
		name: "script", args: []string{"sh", "-c", script}, dir: dir, log: filepath.Join(dir, "log"),
		orderly: syscall.SIGTERM, immediate: syscall.SIGKILL,
	}}
	p.spec.ready = func(context.Context) error {
		if !strings.Contains(p.said(), "ready") {
			return errors.New("no word yet")
		}
		return nil
	}
	t.Cleanup(func() { p.Kill(); lock.Close() })
	return p
}

func TestEndBeforeReady(t *testing.T) {
	t.Parallel()
	p := setupProcess(t, "echo first words; echo last words >&2; exit 3", slog.New(slog.DiscardHandler))
	err := p.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.HasSuffix(err.Error(), "first words\nlast words") {
		t.Errorf("got %v, want the exit status and the process's words", err)
	}
	if errors.Is(err, errPortTaken) {
		t.Error("got a taken port, want another error")
	}
}

func TestNotReadyInTime(t *testing.T) {
	t.Parallel()
	p := setupProcess(t, "exec sleep 60", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := p.Start(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no word yet") {
		t.Errorf("got %v, want the deadline and what was missing", err)
	}
	if p.PID() != 0 {
		t.Error("it runs after an error of its start")
	}
}

// A process that ignores the orderly signal is killed when its time is over.
func TestStubbornProcessIsKilled(t *testing.T) {
	t.Parallel()
	p := setupProcess(t, "trap '' TERM; echo ready; while :; do sleep 0.05; done", slog.New(slog.DiscardHandler))
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	if p.PID() != 0 {
		t.Error("it runs")
	}
}

// Only an end that nobody asked for is logged.
func TestUnexpectedEndIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := setupProcess(t, "echo ready; exec sleep 60", slog.New(slog.NewTextHandler(&log, nil)))
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if log.Len() > 0 {
		t.Errorf("after Stop: got log %q, want none", &log)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := p.Done()
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-done
	if got := log.String(); !strings.Contains(got, "signal: killed") || !strings.Contains(got, "process=script") {
		t.Errorf("got log %q, want the process and how it ended", got)
	}
}

func TestUsedPercent(t *testing.T) {
	if got := usedPercent(1000, 150, 100); got != 89 { // 850 of 950
		t.Errorf("got %d, want 89", got)
	}
	if got := usedPercent(0, 0, 0); got != 0 {
		t.Errorf("got %d, want 0", got)
	}
}

// The guard's last means, for a child that ignores every signal that can be ignored.
func TestGuardKillsAStubbornChild(t *testing.T) {
	t.Parallel()
	p := setupProcess(t, "trap '' TERM QUIT; echo ready; while :; do sleep 0.05; done", slog.New(slog.DiscardHandler))
	p.spec.immediate = syscall.SIGQUIT
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.run.guard.line.Close(); err != nil { // as if this process had died
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	case <-time.After(30 * time.Second):
		t.Error("it lives")
	}
}
