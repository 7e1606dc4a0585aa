// Package app has the commands of the service: it reads flags and environment, wires the other packages together, and
// handles signals. Only the module's root package imports it.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

// Code is the part of a program that the binary adds to the commands.
type Code struct {
	OpenAPI   []byte             // openapi.yaml
	Handlers  map[string]Handler // local transactions in Go that a configuration can name
	Selectors selector.Registry  // types of selectors that a configuration can name
}

// Handler is a local transaction in Go.
type Handler struct {
	Program task.Program
	Schema  txn.Schema // of payloads, for kinds whose configuration gives none; nil: any JSON
}

// Main runs the command that the arguments of the process name, and ends the process. An error of the code comes before
// everything else.
func Main(code Code, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	unused := collectLess()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err == nil {
		err = run(ctx, code, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	runtime.KeepAlive(unused)
	if err != nil {
		fmt.Fprintln(os.Stderr, "txsvc:", err)
		os.Exit(exitCode(err))
	}
}

// exitCode is 1, except for the codes of txsvc verify.
func exitCode(err error) int {
	if v, ok := errors.AsType[verdict](err); ok {
		return v.code
	}
	return 1
}

// The collector's settings, where the environment (GOGC, GOMEMLIMIT) does not say. The live heap is a few megabytes, so that
// the default would collect it many times a second. So there are bytes that are counted as live and take no memory, because
// nobody writes them: the heap may always grow by as much before it is collected. A larger GOGC would do the same to a small
// heap, and would multiply a large one, of thousands of requests or of large bodies.
const (
	unusedHeap  = 32 << 20 // bytes
	memoryLimit = 1 << 30  // bytes; near it the heap is collected as often as it has to be
)

// collectLess sets the collector. The result has to stay alive as long as the process works.
func collectLess() (unused []byte) {
	if os.Getenv("GOGC") == "" {
		unused = make([]byte, unusedHeap)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	return unused
}

// commands is the command line. Flags override the environment.
type commands struct {
	Serve       serveCommand       `cmd:"" help:"Serve the HTTP API."`
	Dev         devCommand         `cmd:"" help:"Run everything on this machine: a real PostgreSQL, a real RocketMQ, and the service with the shipped kinds."`
	Migrate     migrateCommand     `cmd:"" help:"Create or change the tables of the service."`
	CheckConfig checkConfigCommand `cmd:"" help:"Check a configuration of kinds and topics, and its SQL on a database if asked to."`
	Verify      verifyCommand      `cmd:"" help:"Post transactions to a running stack, and prove that none is lost, doubled or misplaced, and that no answer was untrue."`
	Route       routeCommand       `cmd:"" help:"Show which queue keys go to, or accept a topic's changed queues."`
	Tail        tailCommand        `cmd:"" help:"Print the messages of a topic as they arrive."`
	Version     versionCommand     `cmd:"" help:"Print the version."`
}

// output is where commands print.
type output struct{ stdout, stderr io.Writer }

// tell prints a remark, apart from the output of the command.
func (o output) tell(text string) { fmt.Fprintln(o.stderr, "txsvc:", text) }

// exit is what kong panics with in order to leave early (--help).
type exit int

func run(ctx context.Context, code Code, args []string, stdout, stderr io.Writer) (err error) {
	defer func() {
		switch left := recover().(type) {
		case nil:
		case exit:
			if left != 0 {
				err = errors.New("see --help")
			}
		default:
			panic(left)
		}
	}()
	var c commands
	parser, err := kong.New(&c, kong.Name("txsvc"),
		kong.Description("One HTTP transaction: a PostgreSQL change and a RocketMQ message, in the queue that the shard key decides."),
		kong.UsageOnError(), kong.Writers(stdout, stderr), kong.Exit(func(code int) { panic(exit(code)) }),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(output{stdout, stderr}), kong.Bind(code))
	if err != nil {
		return err
	}
	command, err := parser.Parse(args)
	if err != nil {
		return err
	}
	return command.Run()
}
