package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

// selector reads a selector, and has it checked by what will use it.
func (r *reader) selector(f field) selector.Spec {
	before := len(r.problems)
	spec, ok := r.spec(f, true)
	if !ok {
		return spec
	}
	_, err := r.types.New(spec)
	for _, wrong := range selector.OptionErrors(err) {
		r.option(f, wrong, before)
	}
	for _, odd := range spec.Warnings() {
		path, line, column := r.locate(f, odd.Pointer)
		r.warnings = append(r.warnings, Problem{Line: line, Column: column, Path: path, Message: odd.Err.Error()})
	}
	return spec
}

// spec reads one mapping; on_change belongs to the outermost only. It is false when the options cannot be judged.
// The type comes first: the fields of an unknown one are not looked at.
func (r *reader) spec(f field, outermost bool) (selector.Spec, bool) {
	entries, ok := r.entries(f)
	if !ok {
		return selector.Spec{}, false
	}
	i := slices.IndexFunc(entries, func(e entry) bool { return e.name == "type" })
	if i < 0 {
		r.problem(f, "type is required")
		return selector.Spec{}, false
	}
	spec := selector.Spec{Type: r.string(entries[i].field)}
	if spec.Type == "" {
		return spec, false
	}
	before := len(r.problems)
	known := map[string]func(field){"type": func(field) {}}
	if outermost {
		known["on_change"] = func(f field) { spec.OnChange = txn.OnChange(r.string(f)) }
	}
	switch exists, own := r.types.Has(spec.Type); {
	case own:
		spec.Options = r.options(f, known)
		entries = slices.DeleteFunc(entries, func(e entry) bool { return known[e.name] == nil })
	case spec.Type == selector.TypeLanes:
		spec.Lanes = new(selector.Lanes)
		known["by"] = func(f field) { spec.Lanes.By = cmp.Or(r.string(f), "selector_arg") } // any value will do: the mistake is noted already
		known["lanes"] = func(f field) { spec.Lanes.Lanes = r.lanes(f) }
		known["within"] = func(f field) { spec.Lanes.Within = r.within(f) }
	case !exists:
		return spec, true
	}
	r.fields(entries, known)
	return spec, len(r.problems) == before || spec.Options == nil
}

// within is the name of a type, or a selector in full.
func (r *reader) within(f field) selector.Spec {
	if _, ok := f.mapping(); ok {
		spec, _ := r.spec(f, false)
		return spec
	}
	return selector.Spec{Type: r.string(f)}
}

func (r *reader) lanes(f field) []selector.Lane {
	entries, _ := r.entries(f)
	lanes := make([]selector.Lane, 0, len(entries))
	for _, e := range entries {
		lane := selector.Lane{Name: e.name}
		fields, _ := r.entries(e.field)
		r.fields(fields, map[string]func(field){
			"queues": func(f field) { lane.Queues = each(r, f, r.queueRef) },
			"share":  func(f field) { lane.Share = r.number(f) },
			"match":  func(f field) { lane.Match = each(r, f, r.string) },
		})
		lanes = append(lanes, lane)
	}
	return lanes
}

// each reads the elements of a list. It is never nil: an empty list is not the same as none.
func each[T any](r *reader, f field, read func(field) T) []T {
	list, ok := f.node.(*ast.SequenceNode)
	if !ok {
		r.mismatch(f, "a list")
		return []T{}
	}
	values := make([]T, len(list.Values))
	for i, node := range list.Values {
		values[i] = read(field{f.path + "[" + strconv.Itoa(i) + "]", node})
	}
	return values
}

func (r *reader) queueRef(f field) selector.QueueRef {
	switch n := f.node.(type) {
	case *ast.IntegerNode:
		id := r.number(f)
		if id > math.MaxInt32 {
			r.problem(f, "is too large for the id of a queue")
			return selector.QueueRef{}
		}
		return selector.QueueRef{ID: int(id)}
	case *ast.StringNode:
		ref, err := selector.ParseQueueRef(n.Value)
		if err != nil {
			r.problem(f, "%v", err)
		}
		return ref
	default:
		r.mismatch(f, "a queue's id, or broker and id like broker-a:0")
		return selector.QueueRef{}
	}
}

func (r *reader) number(f field) float64 {
	switch n := f.node.(type) {
	case *ast.IntegerNode:
		switch v := n.Value.(type) {
		case int64:
			return float64(v)
		case uint64:
			return float64(v)
		}
	case *ast.FloatNode:
		return n.Value
	}
	r.mismatch(f, "a number")
	return 0
}

// options returns the decoder of all fields of the mapping that are not known; nil when there are none.
func (r *reader) options(f field, known map[string]func(field)) selector.Decode {
	var values []*ast.MappingValueNode
	mapping, _ := f.mapping()
	for iter := mapping.MapRange(); iter.Next(); {
		if known[iter.Key().GetToken().Value] == nil {
			values = append(values, iter.KeyValue())
		}
	}
	if len(values) == 0 {
		return nil
	}
	node := ast.Mapping(f.node.GetToken(), false, values...)
	ast.Walk(plain{r, f.path}, node)
	return func(into any) error { return yaml.NodeToValue(node, into, yaml.Strict()) }
}

// plain notes the parts of YAML that are not used here.
type plain struct {
	r    *reader
	path string
}

// Visit looks at one node.
func (p plain) Visit(node ast.Node) ast.Visitor {
	switch node.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		p.r.mismatch(field{p.path, node}, "")
		return nil
	}
	return p
}

// option notes a mistake that the selector found in its options, unless a mistake at that place is noted already, because
// both are then the same.
func (r *reader) option(f field, wrong *selector.OptionError, before int) {
	path, line, column := r.locate(f, wrong.Pointer)
	message := wrong.Err.Error()
	if at, ok := errors.AsType[yaml.Error](wrong.Err); ok && at.GetToken() != nil {
		// The library's own text has a picture of the file around its message.
		line, column = at.GetToken().Position.Line, at.GetToken().Position.Column
		message = strings.TrimSuffix(message, at.Error()) + decodeMessage(at)
	}
	known := func(p Problem) bool { return within(p.Path, path) || within(path, p.Path) }
	if path == f.path || !slices.ContainsFunc(r.problems[before:], known) {
		r.add(line, column, path, "%s", message)
	}
}

// decodeMessage says it without the words of Go.
func decodeMessage(err yaml.Error) string {
	if mismatch, ok := errors.AsType[*yaml.TypeError](err); ok {
		return fmt.Sprintf("must be %s, not %s", mismatch.DstType, mismatch.SrcType)
	}
	return err.GetMessage()
}

// within tells whether the inner path is the outer one, or begins with it.
func within(inner, outer string) bool {
	rest, ok := strings.CutPrefix(inner, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// locate returns the place in the file that a pointer names, or the nearest around it. A mapping is found at its key.
func (r *reader) locate(f field, pointer string) (path string, line, column int) {
	line, column = position(f.node)
	for token := range jsontext.Pointer(pointer).Tokens() {
		next, key, ok := step(f, token)
		if !ok {
			break
		}
		if _, isMapping := next.mapping(); isMapping {
			line, column = position(key)
		} else {
			line, column = position(next.node)
		}
		f = next
	}
	return f.path, line, column
}

// step goes to a member or an element, and returns the node whose place stands for it.
func step(f field, token string) (next field, key ast.Node, ok bool) {
	if mapping, isMapping := f.mapping(); isMapping {
		for iter := mapping.MapRange(); iter.Next(); {
			if iter.Key().GetToken().Value == token {
				return field{f.path + "." + token, iter.Value()}, iter.Key(), true
			}
		}
	}
	if list, isList := f.node.(*ast.SequenceNode); isList {
		if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(list.Values) {
			return field{f.path + "[" + token + "]", list.Values[i]}, list.Values[i], true
		}
	}
	return field{}, nil, false
}
