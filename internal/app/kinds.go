package app

import (
	"fmt"
	"maps"
	"slices"

	"github.com/txsvc/txsvc/internal/config"
	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

// kinds makes the kinds of the configuration, sorted by name, and their local transactions.
func (c Code) kinds(file *config.File) ([]*txn.Kind, map[string]task.Program, error) {
	kinds, programs := make([]*txn.Kind, 0, len(file.Kinds)), make(map[string]task.Program, len(file.Kinds))
	for _, name := range slices.Sorted(maps.Keys(file.Kinds)) {
		k := file.Kinds[name]
		kind := k.Kind
		var err error
		if kind.Destination, err = c.destination(k.Topic, k.Selector, k.Ordered); err != nil {
			return nil, nil, fmt.Errorf("kind %s: %w", name, err)
		}
		kind.Local, programs[name] = txn.LocalSQL, task.NewSQL(k.Local.SQL)
		if k.Local.Handler != "" {
			kind.Local = txn.LocalHandler
			handler, ok := c.Handlers[k.Local.Handler]
			if !ok {
				return nil, nil, file.ErrorAt(k.Local.Place, fmt.Sprintf("no handler has the name %q; this binary has %v",
					k.Local.Handler, slices.Sorted(maps.Keys(c.Handlers))))
			}
			programs[name] = handler.Program
			if kind.Schema == nil {
				kind.Schema = handler.Schema
			}
		}
		kinds = append(kinds, &kind)
	}
	return kinds, programs, nil
}

// destination makes a destination with its selector. Where the configuration gives no on_change, keys of ordered kinds are refused when
// their queue would change, because their order would break; other keys move.
func (c Code) destination(topic string, spec selector.Spec, ordered bool) (txn.Destination, error) {
	s, err := c.Selectors.New(spec)
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
		if d.OrderedSelector, err = spec.Text(); err != nil {
			return d, fmt.Errorf("the selector of topic %s: %w", topic, err)
		}
	}
	return d, nil
}

// retainedBodies returns the names of the kinds whose bodies stay in their rows.
func retainedBodies(kinds []*txn.Kind) []string {
	var names []string
	for _, kind := range kinds {
		if kind.RetainBody {
			names = append(names, kind.Name)
		}
	}
	return names
}

// topicsOf returns the names of all topics that messages can go to, sorted.
func topicsOf(file *config.File) []string { return slices.Sorted(maps.Keys(file.Topics)) }
