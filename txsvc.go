// Package txsvc is the service as a program, for binaries with local transactions and selectors of your own.
//
// The service runs one HTTP request as one transaction: it changes PostgreSQL and publishes an Apache RocketMQ message, both
// or neither, and the message goes to the queue that the kind's selector chooses. A kind's local transaction is SQL in the
// configuration, or a [Handler] in Go. A selector is one of the shipped types, or a [Selector] in Go. The command of this
// module, cmd/txsvc, has one handler; your own binary has yours:
//
//	package main
//
//	import "github.com/txsvc/txsvc"
//
//	func main() {
//		txsvc.Main(
//			txsvc.WithHandler("transfer", Transfer{}),
//			txsvc.WithSelector("geo", NewGeo),
//		)
//	}
//
// The binary has all commands of txsvc: serve, dev, migrate, check-config, route, tail, verify and version. The
// configuration names your code:
//
//	kinds:
//	  account.transfer:
//	    topic: transfers
//	    local: {handler: transfer}
//	topics:
//	  transfers:
//	    selector: {type: geo, regions: {eu: [0, 1], us: [2, 3]}}
//
// # Handlers
//
// A [Handler] returns a [Plan]. A plan of statements, which are known before the database is asked, runs in one round trip
// together with the service's own row. A plan with a Run function reads before it writes, through the transaction that it
// is given. A handler refuses a request with a [Rejection], which is stored as the answer of this id (422), or with
// [Invalid] (400).
//
// # Selectors
//
// A [Selector] chooses one of the topic's queues by what it is given alone, so that all replicas choose the same. It reads
// its own [Options] from the configuration when the service starts. It refuses a request with [Invalid] (400) or [NoQueue]
// (503). The service never falls back to another queue.
//
// # Mistakes in your code
//
// A panic of a handler rolls the transaction back and is answered 500; a panic of a selector is answered 500 before
// anything is done. So is any other error than those above, and a queue that the selector was not given. The cause is in
// the log and never in the answer. Only a panic in a goroutine that your code starts ends the process.
//
// The directory examples/custom has a whole module with a handler of each sort, a selector, their tests and a configuration.
package txsvc

import (
	_ "embed"
	"fmt"

	"github.com/txsvc/txsvc/internal/app"
	"github.com/txsvc/txsvc/internal/selector"
)

//go:embed openapi.yaml
var openAPI []byte

// Main runs the command that the arguments of the process name, with the environment, until it is done or a signal comes
// (SIGINT, SIGTERM), and ends the process: with 0, or with 1 after printing an error; verify has further codes. It is all that
// a main function calls.
func Main(options ...Option) { app.Main(codeOf(options)) }

// Option adds code to the program; see [WithHandler] and [WithSelector].
type Option func(*code) error

// code is what the options add.
type code struct {
	handlers  map[string]app.Handler
	selectors map[string]selector.Factory
}

// codeOf collects the options. A mistake in one ends the program before it reads its arguments.
func codeOf(options []Option) (app.Code, error) {
	c := code{make(map[string]app.Handler), make(map[string]selector.Factory)}
	for _, add := range options {
		if err := add(&c); err != nil {
			return app.Code{}, err
		}
	}
	types, err := selector.NewRegistry(c.selectors)
	return app.Code{OpenAPI: openAPI, Handlers: c.handlers, Selectors: types}, err
}

// WithHandler adds a local transaction, which the configuration names as local: {handler: NAME}. Each name is given once.
func WithHandler(name string, h Handler) Option {
	return func(c *code) error {
		_, taken := c.handlers[name]
		switch {
		case name == "":
			return fmt.Errorf("a handler of type %T has no name", h)
		case taken:
			return fmt.Errorf("two handlers have the name %q", name)
		case h == nil:
			return fmt.Errorf("the handler %q is nil", name)
		}
		schema, err := schemaOf(h)
		if err != nil {
			return fmt.Errorf("the handler %q: %w", name, err)
		}
		c.handlers[name] = app.Handler{Program: program{h}, Schema: schema}
		return nil
	}
}

// WithSelector adds a type of selectors, which the configuration names as selector: {type: NAME, …}, also within lanes. Each name is
// given once, begins with a small letter, has small letters, digits and . _ -, and is not that of a shipped type.
//
// The service calls make for each topic, kind and lane that uses the type, when it starts and in check-config. An error ends the
// start, with its place in the file: errors of Options.Decode have it, and those of [OptionErrorf] name it; several are
// joined with errors.Join. Options that make does not decode are an error, too.
func WithSelector(name string, make func(options Options) (Selector, error)) Option {
	return func(c *code) error {
		if _, taken := c.selectors[name]; taken {
			return fmt.Errorf("two types of selectors have the name %q", name)
		}
		c.selectors[name] = factory(make)
		return nil
	}
}
