package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/txsvc/txsvc/internal/localtx/sqltext"
	"github.com/txsvc/txsvc/internal/nearest"
	"github.com/txsvc/txsvc/internal/payload"
	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

// timing has the bounds and the default of a kind's timeout.
var timing = txn.DefaultTiming()

// Bounds of a kind's immunity. A broker that waits longer than an hour before its first check-back is a typing error.
const (
	minImmunity = time.Second
	maxImmunity = time.Hour
)

// minResult is the least that a limit of results can be, in bytes.
const minResult = 1 << 10

// file reads the whole file. It settles selectors last, because the topics may come after the kinds.
func (r *reader) file() *File {
	root := r.document()
	if root == nil {
		return nil
	}
	file := &File{Kinds: make(map[string]Kind), Topics: make(map[string]Topic)}
	top := field{node: root}
	entries, ok := r.entries(top)
	if !ok {
		return nil
	}
	declared := false
	seen := r.fields(entries, map[string]func(field){
		"kinds":  func(f field) { r.kinds(f, file) },
		"topics": func(f field) { declared = r.topics(f, file) },
	})
	if !seen["kinds"] {
		r.problem(top, "kinds is required")
	}
	if declared {
		r.checkDeclared(file)
	}
	file.settleSelectors()
	r.checkOrder(file)
	return file
}

// checkDeclared holds kinds to the topics that are declared, once any are: a topic that only a kind names would have the
// default selector, and may be a misspelt one.
func (r *reader) checkDeclared(file *File) {
	declared := slices.Sorted(maps.Keys(file.Topics))
	for _, e := range r.named {
		if slices.Contains(declared, e.name) {
			continue
		}
		meant := ""
		if name, ok := nearest.Name(e.name, declared); ok {
			meant = "; " + name + " is"
		}
		r.problem(e.field, "the topic %s is not declared in topics%s", e.name, meant)
	}
}

// checkOrder refuses an order that no consumer could see, because a consumer reads each queue by itself. All ordered kinds of a
// topic share one line per shard key, so they need one selector.
func (r *reader) checkOrder(file *File) {
	type choice struct{ kind, text string }
	first := make(map[string]choice) // by topic
	for _, e := range r.ordered {
		kind := file.Kinds[e.name]
		s, err := r.types.New(kind.Selector)
		if err != nil {
			continue // its mistake is noted already, where the selector is
		}
		if why := selector.SplitsKeys(s); why != "" {
			r.problem(e.field, "needs a selector that keeps a shard key in one queue; %s", why)
			continue
		}
		text, err := kind.Selector.Text()
		if err != nil {
			continue // it was noted already, too
		}
		text += string(cmp.Or(kind.Selector.OnChange, txn.OnChangeRefuse))
		switch other, ok := first[kind.Topic]; {
		case !ok:
			first[kind.Topic] = choice{e.name, text}
		case other.text != text:
			r.problem(e.field, "needs the selector of the kind %s, which is ordered, too, and has the same topic: one key would go to two queues", other.kind)
		}
	}
}

// settleSelectors gives every kind its selector and every topic its entry.
func (file *File) settleSelectors() {
	for name, kind := range file.Kinds {
		topic, ok := file.Topics[kind.Topic]
		if !ok {
			topic = Topic{Name: kind.Topic, Selector: selector.Spec{Type: selector.Default}}
			file.Topics[kind.Topic] = topic
		}
		if kind.Selector.Type == "" {
			kind.Selector = topic.Selector
			file.Kinds[name] = kind
		}
	}
}

func (r *reader) kinds(f field, file *File) {
	entries, ok := r.entries(f)
	if ok && len(entries) == 0 {
		r.problem(f, "at least one kind is needed")
	}
	for _, e := range entries {
		if wrong := checkKindName(e.name); wrong != "" {
			r.keyProblem(e, "%s", wrong)
		}
		file.Kinds[e.name] = r.kind(e)
	}
}

func (r *reader) kind(e entry) Kind {
	kind := Kind{Kind: txn.Kind{Name: e.name, Timeout: timing.LocalDefault, Options: txn.DefaultOptions()}}
	entries, ok := r.entries(e.field)
	if !ok {
		return kind
	}
	var body field
	seen := r.fields(entries, map[string]func(field){
		"path":     func(f field) { kind.Path = r.endpoint(f, e.name) },
		"topic":    func(f field) { kind.Topic = r.topicOf(f) },
		"tag":      func(f field) { kind.Tag = r.checked(f, checkTag) },
		"schema":   func(f field) { r.schema(f, &kind) },
		"local":    func(f field) { kind.Local = r.local(f) },
		"selector": func(f field) { kind.Selector = r.selector(f) },
		"ordered": func(f field) {
			if kind.Ordered = r.bool(f); kind.Ordered {
				r.ordered = append(r.ordered, entry{name: e.name, field: f})
			}
		},
		"delivery":     func(f field) { kind.Via = choice(r, f, txn.ViaHalf, txn.ViaOutbox) },
		"fallback":     func(f field) { kind.Fallback = choice(r, f, txn.FallbackReject, txn.FallbackOutbox) },
		"immunity":     func(f field) { kind.Immunity = r.duration(f, minImmunity, maxImmunity, time.Second) },
		"timeout":      func(f field) { kind.Timeout = r.duration(f, timing.LocalLeast, timing.LocalMost, time.Millisecond) },
		"body":         func(f field) { kind.Body, body = choice(r, f, txn.BodyPayload, txn.BodyResult), f },
		"keep_body":    func(f field) { kind.RetainBody = r.bool(f) },
		"result_limit": func(f field) { kind.ResultLimit = r.size(f, minResult, txn.MaxResultLimit) },
	})
	if kind.Body == txn.BodyResult && kind.Via != txn.ViaOutbox {
		r.problem(body, "result needs delivery: outbox; a half message is stored before there is a result")
	}
	for _, name := range []string{"topic", "local"} {
		if !seen[name] {
			r.keyProblem(e, "%s is required", name)
		}
	}
	return kind
}

// topicOf reads the name of a kind's topic, and notes it when it is one.
func (r *reader) topicOf(f field) string {
	before := len(r.problems)
	name := r.checked(f, checkTopic)
	if len(r.problems) == before {
		r.named = append(r.named, entry{name: name, field: f})
	}
	return name
}

func (r *reader) endpoint(f field, kind string) string {
	endpoint := r.checked(f, checkPath)
	if owner, taken := r.paths[endpoint]; taken && endpoint != "" {
		r.problem(f, "is the path of the kind %s already", owner)
	}
	r.paths[endpoint] = kind
	return endpoint
}

func (r *reader) schema(f field, kind *Kind) {
	name := r.string(f)
	if name == "" {
		return
	}
	schema, err := payload.Compile(r.dir, path.Clean(name))
	if err != nil {
		r.problem(f, "%v", err)
		return
	}
	kind.Schema = schema
}

// local reads the local transaction: exactly one of the three forms.
func (r *reader) local(f field) Local {
	var local Local
	entries, ok := r.entries(f)
	if !ok {
		return local
	}
	r.fields(entries, map[string]func(field){
		"handler": func(f field) {
			line, column := position(f.node)
			local.Handler, local.Place = r.string(f), Place{line, column, f.path}
		},
		"sql":      func(f field) { r.sql(f, &local) },
		"external": func(f field) { r.problem(f, unsupported) },
	})
	if len(entries) != 1 {
		r.problem(f, "must have exactly one of handler, sql, external")
	}
	return local
}

// sql reads one text, or a list of them; each may hold several statements.
func (r *reader) sql(f field, local *Local) {
	texts := []field{f}
	if list, ok := f.node.(*ast.SequenceNode); ok {
		if len(list.Values) == 0 {
			r.problem(f, "must not be empty")
		}
		texts = nil
		for i, node := range list.Values {
			texts = append(texts, field{fmt.Sprintf("%s[%d]", f.path, i), node})
		}
	}
	var places []func(character int) Place
	for _, f := range texts {
		text := r.string(f)
		if text == "" {
			continue
		}
		statements, err := sqltext.Parse(text)
		if err != nil {
			r.sqlProblem(f, text, err)
			continue
		}
		local.SQL = append(local.SQL, statements...)
		for n := range statements {
			places = append(places, func(character int) Place {
				line, column := sqltext.Locate(text, n, character)
				place, _ := r.placeInSQL(f, text, line, column)
				return place
			})
		}
	}
	local.PlaceInSQL = func(statement, character int) Place { return places[statement](character) }
}

func (r *reader) sqlProblem(f field, text string, err error) {
	if e, ok := errors.AsType[*sqltext.Error](err); ok {
		if place, exact := r.placeInSQL(f, text, e.Line, e.Column); exact {
			r.add(place.Line, place.Column, f.path, "%s", e.Message)
			return
		}
	}
	r.problem(f, "%v", err)
}

// placeInSQL returns the place in the file of a place in the SQL. It is exact for the lines of a block, unless the block is folded,
// because the lines are then others than those of the file; and for text in quotes without escapes. Otherwise it is the
// beginning of the text, and not exact.
func (r *reader) placeInSQL(f field, text string, line, column int) (place Place, exact bool) {
	if block, isBlock := f.node.(*ast.LiteralNode); isBlock {
		number := block.Start.Position.Line + line
		if indent, found := strings.CutSuffix(lineOf(r.text, number), lineOf(text, line)); found && strings.Trim(indent, " ") == "" {
			return Place{number, len(indent) + column, f.path}, true
		}
	}
	number, begin := position(f.node)
	if inFile := lineOf(r.text, number); begin <= len(inFile) && line == 1 {
		inFile = inFile[begin-1:]
		rest := strings.TrimLeft(inFile, `"'`)
		if quotes := len(inFile) - len(rest); quotes <= 1 && strings.HasPrefix(rest, text) {
			return Place{number, begin + quotes + column - 1, f.path}, true
		}
	}
	return Place{number, begin, f.path}, false
}

// lineOf returns a line, counted from 1, without its end.
func lineOf(text string, number int) string {
	lines := strings.Split(text, "\n")
	if number > len(lines) {
		return ""
	}
	return strings.TrimSuffix(lines[number-1], "\r")
}

// topics is false when there is no list of them.
func (r *reader) topics(f field, file *File) bool {
	topics, ok := r.entries(f)
	for _, e := range topics {
		if wrong := checkTopic(e.name); wrong != "" {
			r.keyProblem(e, "%s", wrong)
		}
		topic := Topic{Name: e.name, Selector: selector.Spec{Type: selector.Default}}
		entries, _ := r.entries(e.field)
		r.fields(entries, map[string]func(field){
			"selector": func(f field) { topic.Selector = r.selector(f) },
		})
		file.Topics[e.name] = topic
	}
	return ok
}
