package selector

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime/debug"
	"slices"

	"github.com/txsvc/txsvc/internal/txn"
)

// Decode stores the options of a selector, which are the fields of its mapping beside type and on_change, in the struct
// that into points to, by its yaml tags. It is strict: a field that the struct does not have is an error. Without
// options it leaves the struct as it is.
type Decode func(into any) error

// Factory makes a selector of a user's own type. It is called more than once: every kind gets a selector of its own, and
// within lanes every lane does. It returns OptionErrorf, or several joined by errors.Join, for options that are wrong.
//
// The selector must choose by what it is given alone, so that all replicas choose the same, and be safe for concurrent
// use. It must not change the input. Its reasons are stored and shown: they must not hold values of the request. It
// refuses a request with txn.Invalid or txn.BrokerUnavailable. What it does wrong is not covered up by another queue: any
// other error, a panic, or a queue that it was not given becomes an internal error that names it.
//
// Ordered kinds take a selector only if it has the method ByShardKey() bool, and this returns true: then it chooses by the
// shard key alone.
type Factory func(options Decode) (txn.Selector, error)

// OptionErrorf says what is wrong at a pointer (RFC 6901) into the options, like /weights/a.
func OptionErrorf(pointer, format string, args ...any) *OptionError {
	return &OptionError{pointer, fmt.Errorf(format, args...)}
}

var ownName = regexp.MustCompile(`^[a-z][a-z0-9_.-]*$`)

// NewRegistry returns the shipped types, and a user's own by their names. It refuses names that a configuration could not
// tell from others.
func NewRegistry(own map[string]Factory) (Registry, error) {
	r := shipped()
	for _, name := range slices.Sorted(maps.Keys(own)) {
		factory := own[name]
		_, taken := r.types[name]
		switch {
		case !ownName.MatchString(name):
			return r, fmt.Errorf("own selector type %q: the name has small letters, digits and . _ - and begins with a letter", name)
		case taken:
			return r, fmt.Errorf("own selector type %q: this is the name of a shipped type", name)
		case factory == nil:
			return r, fmt.Errorf("own selector type %q: there is no factory", name)
		}
		r.types[name] = selectorType{own: true, build: func(_ Registry, spec Spec, _ int) (txn.Selector, []*OptionError) {
			return makeOwn(name, factory, spec.Options)
		}}
	}
	return r, nil
}

// makeOwn calls the factory. Options that it does not read are a mistake: nobody would follow them.
func makeOwn(name string, factory Factory, options Decode) (txn.Selector, []*OptionError) {
	read := false
	s, err := callFactory(factory, func(into any) error {
		read = true
		if options == nil {
			return nil
		}
		return options(into)
	})
	switch {
	case err != nil:
		wrong := OptionErrors(err)
		for i, e := range wrong {
			wrong[i] = &OptionError{e.Pointer, fmt.Errorf("selector %s: %w", name, e.Err)}
		}
		return nil, wrong
	case options != nil && !read:
		return nil, []*OptionError{OptionErrorf("", "selector %s takes no options", name)}
	}
	return &own{name, s}, nil
}

func callFactory(factory Factory, options Decode) (s txn.Selector, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s, err = nil, fmt.Errorf("its factory panicked: %v", cause)
		}
	}()
	s, err = factory(options)
	if s == nil && err == nil {
		err = errors.New("its factory returned no selector")
	}
	return s, err
}

// own answers for a selector that is not ours.
type own struct {
	name  string
	inner txn.Selector
}

func (o *own) Name() string { return o.name }

// SplitsKeys goes by the selector's own statement; see Factory.
func (o *own) SplitsKeys() string {
	if s, ok := o.inner.(interface{ ByShardKey() bool }); ok && s.ByShardKey() {
		return ""
	}
	return o.name + " does not say that it goes by the shard key alone"
}

// Select gives the selector a list of its own: one that sorts it would change what everybody else is choosing from.
func (o *own) Select(queues []txn.Queue, in txn.SelectorInput) (txn.Route, error) {
	if len(queues) == 0 {
		return txn.Route{}, noQueue()
	}
	route, err := o.call(slices.Clone(queues), in)
	if err != nil {
		return txn.Route{}, err
	}
	if !slices.Contains(queues, route.Queue) {
		return txn.Route{}, o.broken(fmt.Errorf("it answered %s, which is none of the %d queues it was given", route.Queue, len(queues)))
	}
	route.Selector = o.name
	if route.Reason == "" {
		route.Reason = "chosen by " + o.name
	}
	return route, nil
}

// call lets through what may be told to a client, and names the selector in everything else.
func (o *own) call(queues []txn.Queue, in txn.SelectorInput) (route txn.Route, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			route, err = txn.Route{}, o.broken(fmt.Errorf("it panicked: %v\n%s", cause, debug.Stack()))
		}
	}()
	route, err = o.inner.Select(queues, in)
	if err == nil {
		return route, nil
	}
	if e, ok := errors.AsType[*txn.Error](err); ok && (e.Code == txn.CodeInvalidRequest || e.Code == txn.CodeBrokerUnavailable) {
		return txn.Route{}, e
	}
	return txn.Route{}, o.broken(err)
}

func (o *own) broken(cause error) error {
	return &txn.Error{Code: txn.CodeInternal, Detail: fmt.Sprintf("the selector %s failed", o.name), Cause: cause}
}
