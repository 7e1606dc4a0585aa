// Command withstack starts a real PostgreSQL and a real RocketMQ, runs a command with their addresses in
// TXSVC_TEST_STACK, and stops them when the command ends:
//
//	go run ./internal/tools/devstack/withstack go test ./...
//
// So the packages of a test run share one stack. It exits with the command's code.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "withstack:", err)
	}
	os.Exit(code)
}

// run returns the command's exit code, 2 when it could not be run.
func run(args []string) (int, error) {
	if len(args) == 0 {
		return 2, errors.New("usage: withstack COMMAND [ARGUMENT…]")
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stack, release, err := start(signals)
	if err != nil {
		return 2, err
	}
	defer release()
	described, err := json.Marshal(stacktest.Describe(stack))
	if err != nil {
		return 2, fmt.Errorf("describing the stack: %w", err)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), stacktest.Env+"="+string(described))
	return follow(cmd, signals)
}

// start starts the stack. A signal meanwhile ends the start.
func start(signals <-chan os.Signal) (*devstack.Stack, func(), error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	started := make(chan struct{})
	defer close(started)
	go func() {
		select {
		case s := <-signals:
			cancel(fmt.Errorf("%s", s))
		case <-started:
		}
	}()
	o := stacktest.SharedOptions()
	o.Progress = func(step string) { fmt.Fprintln(os.Stderr, "withstack:", step) }
	return stacktest.StartTemporary(ctx, o)
}

// follow runs the command, forwards signals to it, and returns its exit code.
func follow(cmd *exec.Cmd, signals <-chan os.Signal) (int, error) {
	if err := cmd.Start(); err != nil {
		return 2, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended just now
		case err := <-ended:
			return exitCode(err)
		}
	}
}

// exitCode returns the command's exit code; for a killed command 128 and the signal's number, as in a shell.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	if err == nil {
		return 0, nil
	}
	if !errors.As(err, &exit) {
		return 2, err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
