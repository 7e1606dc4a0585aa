// Command faults runs the fault suite; see package faults.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/txsvc/txsvc/internal/tools/faults"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

var errFound = errors.New("something was lost, doubled, invented, misrouted, out of order or untrue")

func run(ctx context.Context, args []string) error {
	o := faults.Options{}
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	flags.Uint64Var(&o.Seed, "seed", rand.Uint64N(1e9), "of the plan and of the load")
	flags.IntVar(&o.PerFault, "each", 20, "how often each fault is injected")
	names := flags.String("faults", "", "comma-separated names; all when empty")
	flags.DurationVar(&o.Round, "round", 2*time.Minute, "about how long faults are injected between two checks")
	flags.IntVar(&o.Only, "only", 0, "number of the one round to run; 0 runs all")
	flags.Float64Var(&o.Rate, "rate", 800, "transactions per second")
	flags.IntVar(&o.Concurrency, "concurrency", 256, "transactions in flight at most")
	flags.BoolVar(&o.Race, "race", false, "build the service with the race detector")
	flags.StringVar(&o.Binary, "binary", "", "the service, built with the tag failpoints; it is built when empty")
	flags.StringVar(&o.Dir, "dir", "", "a new directory for everything; a temporary one when empty, which is kept where something was found")
	asJSON := flags.Bool("json", false, "print the result as JSON")
	list := flags.Bool("list", false, "list the faults and end")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		for _, f := range faults.Faults() {
			fmt.Printf("%-22s %s\n", f.Name, f.About)
		}
		return nil
	}
	if *names != "" {
		o.Faults = strings.Split(*names, ",")
	}
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	temporary := o.Dir == ""
	if temporary {
		dir, err := os.MkdirTemp("", "txsvc-faults-")
		if err != nil {
			return err
		}
		o.Dir = dir
	}
	result, err := faults.Run(ctx, o)
	if result == nil {
		return err
	}
	result.Command = fmt.Sprintf("bin/faults -seed %d -each %d -round %s -rate %g -concurrency %d -faults '%s'", o.Seed, o.PerFault, o.Round, o.Rate, o.Concurrency, *names)
	if temporary && err == nil && len(result.Findings) == 0 {
		_ = os.RemoveAll(o.Dir)
	}
	if *asJSON {
		err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(result))
	} else {
		err = errors.Join(err, result.Print(os.Stdout))
	}
	if len(result.Findings) > 0 {
		err = errors.Join(err, errFound)
	}
	return err
}
