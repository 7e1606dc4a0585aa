package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/txsvc/txsvc/internal/selector"
)

const unsupported = "not supported by this version"

// reader walks the YAML tree by hand, because a decoder into structs would stop at the first mistake, and could not
// distinguish unknown fields from those of later versions.
type reader struct {
	text     string
	dir      fs.FS
	types    selector.Registry
	paths    map[string]string // endpoints so far, and whose they are
	named    []entry           // the topics that kinds name
	ordered  []entry           // kinds, with the field that makes them so
	problems []Problem
	warnings []Problem
}

// field is a value with the path that leads to it.
type field struct {
	path string
	node ast.Node
}

func (r *reader) add(line, column int, path, format string, args ...any) {
	r.problems = append(r.problems, Problem{Line: line, Column: column, Path: path, Message: fmt.Sprintf(format, args...)})
}

// problem notes a mistake at the field's value.
func (r *reader) problem(f field, format string, args ...any) {
	line, column := position(f.node)
	r.add(line, column, f.path, format, args...)
}

func position(n ast.Node) (line, column int) {
	if token := n.GetToken(); token != nil && token.Position != nil {
		return token.Position.Line, token.Position.Column
	}
	return 1, 1
}

// document returns the only document's root, or nil after noting why there is none.
func (r *reader) document() ast.Node {
	file, err := parser.ParseBytes([]byte(r.text), 0)
	if err != nil {
		r.syntax(err)
		return nil
	}
	var roots []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil {
			roots = append(roots, doc.Body)
		}
	}
	switch len(roots) {
	case 0:
		r.add(1, 1, "", "the file is empty")
		return nil
	case 1:
		return roots[0]
	default:
		line, column := position(roots[1])
		r.add(line, column, "", "there must be one document only")
		return nil
	}
}

func (r *reader) syntax(err error) {
	if located, ok := errors.AsType[yaml.Error](err); ok && located.GetToken() != nil {
		at := located.GetToken().Position
		r.add(at.Line, at.Column, "", "%s", located.GetMessage())
		return
	}
	r.add(1, 1, "", "%s", err)
}

// entry is a key of a mapping with its value.
type entry struct {
	key  ast.Node
	name string
	field
}

// entries returns the entries of a mapping in the order of the file. It is false after noting that the value is no mapping.
func (r *reader) entries(f field) ([]entry, bool) {
	mapping, ok := f.mapping()
	if !ok {
		r.mismatch(f, "a mapping")
		return nil, false
	}
	var list []entry
	for iter := mapping.MapRange(); iter.Next(); {
		name := iter.Key().GetToken().Value
		path := name
		if f.path != "" {
			path = f.path + "." + name
		}
		list = append(list, entry{key: iter.Key(), name: name, field: field{path, iter.Value()}})
	}
	return list, true
}

// mismatch notes that the value is not of the kind that it should be, or made of parts of YAML that are not used here.
func (r *reader) mismatch(f field, want string) {
	switch f.node.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		r.problem(f, "anchors, aliases and tags of YAML are not used here")
	default:
		r.problem(f, "must be %s", want)
	}
}

// mapping returns the value when it is one; an anchor before a mapping also has its methods.
func (f field) mapping() (ast.MapNode, bool) {
	switch n := f.node.(type) {
	case *ast.MappingNode:
		return n, true
	case *ast.MappingValueNode:
		return n, true
	default:
		return nil, false
	}
}

// keyProblem notes a mistake at the key.
func (r *reader) keyProblem(e entry, format string, args ...any) {
	line, column := position(e.key)
	r.add(line, column, e.path, format, args...)
}

// fields calls the reader of each entry, and returns the names that it saw. An entry without a reader is a mistake.
func (r *reader) fields(entries []entry, readers map[string]func(field)) map[string]bool {
	seen := make(map[string]bool)
	for _, e := range entries {
		read, ok := readers[e.name]
		if !ok {
			r.keyProblem(e, "unknown field; known are %s", strings.Join(slices.Sorted(maps.Keys(readers)), ", "))
			continue
		}
		seen[e.name] = true
		read(e.field)
	}
	return seen
}

// string returns a text, which must not be empty.
func (r *reader) string(f field) string {
	var text string
	switch n := f.node.(type) {
	case *ast.StringNode:
		text = n.Value
	case *ast.LiteralNode:
		text = n.Value.Value
	default:
		r.mismatch(f, "text; in quotes if it looks like something else")
		return ""
	}
	if strings.TrimSpace(text) == "" {
		r.problem(f, "must not be empty")
		return ""
	}
	return text
}

// checked returns a text, after noting the mistake that check finds in it.
func (r *reader) checked(f field, check func(string) string) string {
	text := r.string(f)
	if text == "" {
		return ""
	}
	if wrong := check(text); wrong != "" {
		r.problem(f, "%s", wrong)
	}
	return text
}

func (r *reader) bool(f field) bool {
	n, ok := f.node.(*ast.BoolNode)
	if !ok {
		r.mismatch(f, "true or false")
		return false
	}
	return n.Value
}

// duration returns a time like 10s that lies within the bounds and is a multiple of unit.
func (r *reader) duration(f field, least, most, unit time.Duration) time.Duration {
	var d time.Duration
	err := errors.New("not a text")
	if n, ok := f.node.(*ast.StringNode); ok {
		d, err = time.ParseDuration(n.Value)
	}
	switch {
	case err != nil:
		r.mismatch(f, "a time with its unit, like 10s")
	case d < least || d > most:
		r.problem(f, "must be from %v to %v", least, most)
	case d%unit != 0:
		r.problem(f, "must be a multiple of %v", unit)
	}
	return d
}

// size returns a number of bytes like 64KiB that lies within the bounds.
func (r *reader) size(f field, least, most int) int {
	size, ok := 0, false
	if n, isText := f.node.(*ast.StringNode); isText {
		for unit, factor := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
			if digits, found := strings.CutSuffix(n.Value, unit); found {
				count, err := strconv.Atoi(strings.TrimSpace(digits))
				ok = err == nil && count >= 0 && count <= most
				size = count * factor
			}
		}
	}
	switch {
	case !ok:
		r.mismatch(f, "a size with its unit, like 64KiB or 1MiB")
	case size < least || size > most:
		r.problem(f, "must be from %dKiB to %dMiB", least>>10, most>>20)
	}
	return size
}

// choice returns one of the words, the first of which is the default.
func choice[T ~string](r *reader, f field, words ...T) T {
	text := T(r.string(f))
	switch {
	case slices.Contains(words, text):
		return text
	case text != "":
		names := make([]string, len(words))
		for i, word := range words {
			names[i] = string(word)
		}
		r.problem(f, "must be %s", strings.Join(names, " or "))
	}
	return words[0]
}
