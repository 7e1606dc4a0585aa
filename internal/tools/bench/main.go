// Command bench measures POST /v1/orders with wrk. A baseline, which does the same inserts without messages, and
// the service with either transport take turns within one run. It starts a real PostgreSQL and a real RocketMQ in a
// temporary directory, and prints requests per second, the medians, and their ratios to the baseline. It is a tool,
// not part of the service.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/migrations"
)

// script makes wrk send orders of two items, with keys of 10,000 customers.
const script = `
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local n = 0
request = function()
  n = n + 1
  local customer = "customer-" .. (n * 7919 % 10000)
  return wrk.format(nil, "/v1/orders", nil, '{"shard_key":"' .. customer .. '","payload":{"customer":"' .. customer ..
    '","currency":"EUR","items":[{"sku":"tea","quantity":2,"amount_minor":450},{"sku":"cup","quantity":1,"amount_minor":1200}]}}')
end
`

type options struct {
	rounds, connections int
	duration            time.Duration
	bare                string // internal: serve the baseline on this address
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "rounds, each of all contestants in turn")
	flag.IntVar(&o.connections, "connections", 32, "wrk's connections")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "of one measurement")
	flag.StringVar(&o.bare, "bare", "", "internal: serve the baseline on this address")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// contestant is one process that answers POST /v1/orders.
type contestant struct {
	name string
	args []string
	env  []string
	rps  []float64
}

func run(ctx context.Context, o options) error {
	if o.bare != "" {
		return serveBare(ctx, o.bare, os.Getenv("TXSVC_DATABASE_URL"))
	}
	if _, err := exec.LookPath("wrk"); err != nil {
		return errors.New("wrk is missing: install it (Debian: apt-get install wrk)")
	}
	dir, err := os.MkdirTemp("", "txsvc-bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	stack, err := devstack.Start(ctx, devstack.Options{
		Dir: filepath.Join(dir, "stack"), Progress: func(step string) { fmt.Println("bench:", step) },
		// A young generation that fits the load, as docs/operations.md recommends for brokers.
		JavaOptions: []string{"-Xmx512m", "-Xms512m", "-Xmn256m"},
	})
	if err != nil {
		return err
	}
	defer func() { _ = stack.Stop(context.WithoutCancel(ctx)) }()
	if err := prepare(ctx, stack); err != nil {
		return err
	}
	binary := filepath.Join(dir, "txsvc")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/txsvc").CombinedOutput(); err != nil {
		return fmt.Errorf("building txsvc: %w\n%s", err, out)
	}
	scriptFile := filepath.Join(dir, "orders.lua")
	if err := os.WriteFile(scriptFile, []byte(script), 0o600); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	service := func(transport string) []string {
		return []string{"TXSVC_NAMESERVERS=" + strings.Join(stack.Nameservers(), ","), "TXSVC_ROCKETMQ_TRANSPORT=" + transport,
			"TXSVC_CONFIG=internal/config/dev.yaml", "TXSVC_LOG_LEVEL=error"}
	}
	contestants := []*contestant{
		{name: "baseline", args: []string{self, "-bare"}},
		{name: "txsvc native", args: []string{binary, "serve", "--listen"}, env: service("native")},
		{name: "txsvc library", args: []string{binary, "serve", "--listen"}, env: service("library")},
	}
	for _, c := range contestants {
		c.env = append(c.env, "TXSVC_DATABASE_URL="+stack.DatabaseURL())
	}
	for round := range o.rounds + 1 {
		for _, c := range contestants {
			rps, err := measure(ctx, c, o, scriptFile)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if round == 0 {
				fmt.Printf("bench: not counted, the broker's JVM is cold: %-14s %7.0f requests/s\n", c.name, rps)
				continue
			}
			c.rps = append(c.rps, rps)
			fmt.Printf("bench: round %d: %-14s %7.0f requests/s\n", round, c.name, rps)
		}
	}
	report(contestants)
	return nil
}

func prepare(ctx context.Context, stack *devstack.Stack) error {
	if err := migrations.Up(ctx, stack.DatabaseURL(), migrations.Core, migrations.Example); err != nil {
		return err
	}
	mq, err := remoting.New(remoting.Config{Nameservers: stack.Nameservers(), Group: "bench-admin"})
	if err != nil {
		return err
	}
	defer func() { _ = mq.Close(ctx) }()
	if err := mq.Start(ctx); err != nil {
		return err
	}
	return errors.Join(mq.CreateTopic(ctx, "orders", 8), mq.CreateTopic(ctx, "payments", 8))
}

var requestsPerSecond = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)

// measure starts the contestant, warms it up, and returns what wrk counts. An answer other than 2xx is an error.
func measure(ctx context.Context, c *contestant, o options, scriptFile string) (float64, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, c.args[0], append(slices.Clone(c.args[1:]), addr)...)
	cmd.Env, cmd.Stderr = append(os.Environ(), c.env...), os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() }()
	if err := awaitReady(ctx, "http://"+addr+"/readyz"); err != nil {
		return 0, err
	}
	if _, err := wrk(ctx, addr, o, scriptFile, time.Second); err != nil {
		return 0, err
	}
	return wrk(ctx, addr, o, scriptFile, o.duration)
}

func wrk(ctx context.Context, addr string, o options, scriptFile string, duration time.Duration) (float64, error) {
	out, err := exec.CommandContext(ctx, "wrk", "-t1", "-c"+strconv.Itoa(o.connections), "-d"+strconv.Itoa(max(1, int(duration.Seconds()))),
		"-s", scriptFile, "http://"+addr).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	if strings.Contains(string(out), "Non-2xx") || strings.Contains(string(out), "Socket errors") {
		return 0, fmt.Errorf("not every request succeeded:\n%s", out)
	}
	match := requestsPerSecond.FindSubmatch(out)
	if match == nil {
		return 0, fmt.Errorf("wrk said something else:\n%s", out)
	}
	return strconv.ParseFloat(string(match[1]), 64)
}

func freeAddr(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", url, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func report(contestants []*contestant) {
	base := median(contestants[0].rps)
	fmt.Printf("\n%-14s %10s %10s %10s %8s\n", "", "min", "median", "max", "ratio")
	for _, c := range contestants {
		fmt.Printf("%-14s %10.0f %10.0f %10.0f %8.2f\n", c.name, slices.Min(c.rps), median(c.rps), slices.Max(c.rps), median(c.rps)/base)
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
