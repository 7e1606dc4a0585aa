package app

import (
	"fmt"
	"maps"
	"slices"

	"github.com/txsvc/txsvc/internal/config"
	"github.com/txsvc/txsvc/internal/localtx"
	"github.com/txsvc/txsvc/internal/orders"
	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

// handlers are the local transactions in Go that a configuration can name. Add your own here.
var handlers = map[string]localtx.Program{
	"orders": orders.Handler{},
}

// selectors are the types of selectors in Go that a configuration can name, beside the shipped ones. Add your own here.
var selectors = selector.Registry{}

// buildKinds makes what the service runs of what the configuration says, sorted by name.
func buildKinds(file *config.File) ([]*txn.Kind, map[string]localtx.Program, error) {
	kinds, programs := make([]*txn.Kind, 0, len(file.Kinds)), make(map[string]localtx.Program, len(file.Kinds))
	for _, name := range slices.Sorted(maps.Keys(file.Kinds)) {
		c := file.Kinds[name]
		to, err := destination(c.Topic, c.Selector, c.Ordered)
		if err != nil {
			return nil, nil, fmt.Errorf("kind %s: %w", name, err)
		}
		kind := &txn.Kind{
			Name: name, Path: c.Path, Destination: to, Tag: c.Tag, Schema: c.Schema, Immunity: c.Immunity,
			Timeout: c.Timeout, Local: "sql", Ordered: c.Ordered, Outbox: c.Outbox, Fallback: c.Fallback, BodyResult: c.BodyResult,
			ResultLimit: c.ResultLimit,
		}
		programs[name] = localtx.NewSQL(c.Local.SQL)
		if c.Local.Handler != "" {
			kind.Local = "handler"
			program, ok := handlers[c.Local.Handler]
			if !ok {
				return nil, nil, file.ErrorAt(c.Local.Place, fmt.Sprintf("no handler has the name %q; this binary has %v",
					c.Local.Handler, slices.Sorted(maps.Keys(handlers))))
			}
			programs[name] = program
			if knows, ok := program.(localtx.Schemed); ok && kind.Schema == nil {
				kind.Schema = knows.Schema()
			}
		}
		kinds = append(kinds, kind)
	}
	return kinds, programs, nil
}

// destination settles what becomes of keys whose queue changes: ordered kinds would rather wait than leave their queue.
func destination(topic string, spec selector.Spec, ordered bool) (txn.Destination, error) {
	s, err := selectors.New(spec)
	if err != nil {
		return txn.Destination{}, fmt.Errorf("the selector of topic %s: %w", topic, err)
	}
	onChange := spec.OnChange
	switch {
	case onChange != "":
	case ordered:
		onChange = txn.OnChangeRefuse
	default:
		onChange = txn.OnChangeRemap
	}
	d := txn.Destination{Topic: topic, Selector: s, OnChange: onChange, Java: spec.Type == selector.TypeJavaHash}
	if ordered {
		d.Selector = selector.ByKey(s)
		if d.Keeps, err = spec.Text(); err != nil {
			return d, fmt.Errorf("the selector of topic %s: %w", topic, err)
		}
	}
	return d, nil
}

// keptBodies returns the names of the kinds that keep their bodies.
func keptBodies(file *config.File) []string {
	var names []string
	for name, kind := range file.Kinds {
		if kind.KeepBody {
			names = append(names, name)
		}
	}
	return names
}

// topicsOf returns the names of all topics that messages can go to, sorted.
func topicsOf(file *config.File) []string { return slices.Sorted(maps.Keys(file.Topics)) }
