package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	readyWithin = 30 * time.Second
	stopWithin  = 20 * time.Second
)

// process is a contender that serves.
type process struct {
	cmd     *exec.Cmd
	address string
	log     *os.File
	ended   chan struct{}
}

// serve starts a contender, and returns when it is ready.
func (b *bench) serve(ctx context.Context, c *contender) (*process, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	command, err := c.start(address)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(b.dir, c.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // in a directory of ours
	if err != nil {
		return nil, fmt.Errorf("the log of %s: %w", c.name, err)
	}
	p := &process{cmd: exec.CommandContext(context.WithoutCancel(ctx), command.args[0], command.args[1:]...), address: address, log: log, ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = append(os.Environ(), command.env...), log, log
	p.cmd.SysProcAttr = endWithParent()
	if err := p.cmd.Start(); err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("starting %s: %w", c.name, err)
	}
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	if err := p.awaitReady(ctx); err != nil {
		p.stop()
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("starting %s: %w\n%s", c.name, err, text[max(0, len(text)-2000):])
	}
	return p, nil
}

// stop ends the process in order, or by SIGKILL after 20 s.
func (p *process) stop() {
	defer p.log.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopWithin):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

func (p *process) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		err := p.askReady(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("it has ended: %s", p.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *process) askReady(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request) //nolint:gosec // loopback
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<12))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return nil
}

func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("choosing an address: %w", err)
	}
	return l.Addr().String(), l.Close()
}
