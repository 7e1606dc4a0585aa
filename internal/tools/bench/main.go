// Command bench measures what a message costs: the service beside handlers without messages and beside other ways to change a
// database and send a message as one unit. All take turns within one run, on one machine, with one real PostgreSQL and one real
// RocketMQ, which it starts in a temporary directory. docs/benchmark.md says what is measured, and how. It is a tool, not part of
// the service, and runs on Linux only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := measure(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	Only        string        `json:"only,omitempty"`
	Rounds      int           `json:"rounds"`
	Duration    time.Duration `json:"duration"`
	Warm        time.Duration `json:"warm"`
	Cold        time.Duration `json:"cold"`
	Connections int           `json:"connections"`
	Rates       string        `json:"rates"`
	OpenRounds  int           `json:"open_rounds"`
	Linger      time.Duration `json:"linger"`
	JSON        string        `json:"-"`
	SVG         string        `json:"-"`
	Root        string        `json:"-"`
	NoVerify    bool          `json:"no_verify,omitempty"`
}

func measure(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.Only, "only", "", "names of contenders, with commas between; default: all")
	flags.IntVar(&o.Rounds, "rounds", 5, "rounds of the closed loop, each of all contenders in turn")
	flags.DurationVar(&o.Duration, "duration", 5*time.Second, "of one measurement")
	flags.DurationVar(&o.Warm, "warm", 2*time.Second, "load before each measurement")
	flags.DurationVar(&o.Cold, "cold", 5*time.Second, "least load before the first measurement, which does not count; 0: all measurements count")
	flags.IntVar(&o.Connections, "connections", 32, "of the closed loop; the open loop uses up to 4 times as many")
	flags.StringVar(&o.Rates, "rates", "0.25,0.5,0.75", "rates of the open loop, as parts of what each contender reached in the closed loop; empty: no open loop")
	flags.IntVar(&o.OpenRounds, "open-rounds", 3, "rounds of the open loop, for each rate")
	flags.DurationVar(&o.Linger, "linger", 40*time.Second, "how long after the last answer the topics are read, because copies may come late")
	flags.BoolVar(&o.NoVerify, "no-verify", false, "do not compare answers, rows and messages at the end")
	flags.StringVar(&o.JSON, "json", "", "file for the results as JSON")
	flags.StringVar(&o.SVG, "svg", "", "file for the results as a chart")
	flags.StringVar(&o.Root, "root", ".", "of this repository, for the programs that are built")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r, err := run(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(r.write(os.Stdout), r.wrong())
}

func names(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
