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

// Decode stores the options of a selector in the struct that into points to, by its yaml tags. The options are the
// fields of the selector's mapping other than type and on_change. Decode is strict: a field that the struct does not
// have is an error. Without options it does not change the struct.
type Decode func(into any) error

// Factory makes a selector of a user's own type. It is called more than once, because every kind gets a selector of its
// own, and so does every lane. For wrong options it returns OptionErrorf, or several joined by errors.Join.
//
// The selector must look at nothing but its input, so that all replicas choose the same. It must be safe for concurrent
// use, and must not change the input. Its reasons must not have values of the request, because they are stored and
// shown. It refuses a request with txn.Invalid or txn.BrokerUnavailable. Any other error, a panic, or a queue that was
// not in its input becomes an internal error that names the selector; there is no fallback to another queue.
//
// Ordered kinds take a selector only if it has the method ByShardKey() bool, and this returns true: then it chooses by the
// shard key alone.
type Factory func(options Decode) (txn.Selector, error)

// OptionErrorf returns a mistake at a pointer (RFC 6901) into the options, like /weights/a.
func OptionErrorf(pointer, format string, args ...any) *OptionError {
	return &OptionError{pointer, fmt.Errorf(format, args...)}
}

var ownName = regexp.MustCompile(`^[a-z][a-z0-9_.-]*$`)

// NewRegistry returns the shipped types, and a user's own by their names. It refuses names of shipped types, names
// of another form than ownName, and missing factories.
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

// makeOwn calls the factory. Options that the factory does not read are a mistake, because they would have no effect.
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

// own wraps a user's own selector, and checks its results.
type own struct {
	name  string
	inner txn.Selector
}

func (o *own) Name() string { return o.name }

// SplitsKeys returns the selector's own statement; see Factory.
func (o *own) SplitsKeys() string {
	if s, ok := o.inner.(interface{ ByShardKey() bool }); ok && s.ByShardKey() {
		return ""
	}
	return o.name + " does not say that it goes by the shard key alone"
}

// Select gives the selector a copy of the list, because a selector that sorts it would change the list that all share.
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

// call passes on errors that clients may see, and turns all others into internal errors that name the selector.
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
