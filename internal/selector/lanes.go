package selector

import (
	"cmp"
	"errors"
	"math/bits"
	"slices"
	"strings"

	"github.com/txsvc/txsvc/internal/txn"
)

// lanes picks a lane, then lets another selector pick one of the lane's queues. An exact match comes before the longest
// prefix, that before a share of the shard keys, and the default lane comes last.
type lanes struct {
	source   source
	exact    map[string]*rule
	prefixes []prefixes // the longest first
	shares   []share    // in order
	rest     *rule      // of the default lane; nil: there is none
	seed     uint64
	splits   string // see SplitsKeys
}

// prefixes are those of one length.
type prefixes struct {
	length int
	rules  map[string]*rule
}

// share is a range of the shard keys' points. It begins where the one before it ends.
type share struct {
	end  uint64
	rule *rule
}

// rule is a way into a lane.
type rule struct {
	lane    *lane
	reasons joined
}

// lane is a set of queues with the selector that picks one.
type lane struct {
	name  string
	refs  []QueueRef
	inner txn.Selector
	names joined // of lanes within this one
	parts recent[[]txn.Queue]
}

// buildLanes makes the selector, or returns all mistakes.
func buildLanes(r Registry, of Spec, depth int) (txn.Selector, []*OptionError) {
	spec := of.Lanes
	if spec == nil {
		return nil, []*OptionError{OptionErrorf("", "by and lanes are required")}
	}
	wrong := spec.check()
	sample, inner := r.build(spec.Within, depth+1)
	wrong = append(wrong, beneath("/within", inner)...)
	if spec.Within.OnChange != "" {
		wrong = append(wrong, OptionErrorf("/within/on_change", "belongs to the selector around it"))
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	// Every depth has a seed of its own, because otherwise a canary within a lane would be all or nothing of another
	// canary.
	from, _ := parseSource(spec.By) // as checked
	l := &lanes{source: from, exact: make(map[string]*rule), seed: mix64(uint64(depth) + 1), splits: lanesSplit(spec.By, sample)}
	for i := range spec.Lanes {
		inner, wrong := r.build(spec.Within, depth+1) // every lane has its own, because a selector remembers results for its lists of queues
		if wrong != nil {
			return nil, beneath("/within", wrong)
		}
		l.add(&spec.Lanes[i], inner)
	}
	slices.SortFunc(l.prefixes, func(a, b prefixes) int { return cmp.Compare(b.length, a.length) })
	return l, nil
}

// add appends a lane.
func (l *lanes) add(spec *Lane, inner txn.Selector) {
	to := &lane{name: spec.Name, refs: spec.Queues, inner: inner, names: joined{prefix: spec.Name + "/"}}
	for _, match := range spec.rules() {
		way := newRule(to, "match "+match)
		if prefix, ok := strings.CutSuffix(match, "*"); ok {
			l.addPrefix(prefix, way)
		} else {
			l.exact[match] = way
		}
	}
	if units := spec.units(); units > 0 {
		var start uint64
		if n := len(l.shares); n > 0 {
			start = l.shares[n-1].end
		}
		l.shares = append(l.shares, share{start + uint64(units), newRule(to, "share "+percent(spec.Share)+"%")})
	}
	if spec.Name == LaneDefault {
		l.rest = newRule(to, "no rule")
	}
}

func newRule(to *lane, why string) *rule {
	return &rule{lane: to, reasons: joined{prefix: "lane " + to.name + " (" + why + "), "}}
}

func (l *lanes) addPrefix(prefix string, to *rule) {
	i := slices.IndexFunc(l.prefixes, func(p prefixes) bool { return p.length == len(prefix) })
	if i < 0 {
		i = len(l.prefixes)
		l.prefixes = append(l.prefixes, prefixes{len(prefix), make(map[string]*rule)})
	}
	l.prefixes[i].rules[prefix] = to
}

func (l *lanes) Name() string { return TypeLanes }

func (l *lanes) Select(queues []txn.Queue, in txn.SelectorInput) (txn.Route, error) {
	if len(queues) == 0 {
		return txn.Route{}, noQueue()
	}
	named, inside, err := l.source.read(in)
	if err != nil {
		return txn.Route{}, err
	}
	way := l.way(named, in.ShardKey)
	if way == nil && named.given {
		return txn.Route{}, l.source.wrong("names no lane, and there is no default lane")
	}
	if way == nil {
		return txn.Route{}, l.source.wrong("is required: it names the lane, and there is no default lane")
	}
	return way.follow(queues, inside, l.source)
}

// way returns the rule for a message; nil when there is none.
func (l *lanes) way(named value, key string) *rule {
	if named.given {
		text := named.text
		if named.json != nil {
			text = string(named.json)
		}
		if way := l.match(text); way != nil {
			return way
		}
	}
	if len(l.shares) > 0 {
		point := l.point(key)
		for _, s := range l.shares {
			if point < s.end {
				return s.rule
			}
		}
	}
	return l.rest
}

func (l *lanes) match(text string) *rule {
	if way := l.exact[text]; way != nil {
		return way
	}
	for _, p := range l.prefixes {
		if len(text) < p.length {
			continue
		}
		if way := p.rules[text[:p.length]]; way != nil {
			return way
		}
	}
	return nil
}

// point returns the shard key's point, from 0 to shareUnits. It is independent of the queue that a hash picks, because
// otherwise the keys of a canary would share a few of its queues.
func (l *lanes) point(key string) uint64 {
	point, _ := bits.Mul64(mix64(fnv1a64(key)^l.seed), shareUnits)
	return point
}

// follow picks a queue of the rule's lane.
func (r *rule) follow(queues []txn.Queue, in txn.SelectorInput, from source) (txn.Route, error) {
	own := r.lane.queues(queues)
	if len(own) == 0 {
		return txn.Route{}, txn.BrokerUnavailable(nil, "the lane %s has no usable queue now: of its queues (%s) the topic has none",
			r.lane.name, refList(r.lane.refs))
	}
	route, err := r.lane.inner.Select(own, in)
	if err != nil {
		return txn.Route{}, r.lane.refused(err, from)
	}
	route.Selector, route.Reason = TypeLanes, r.reasons.with(route.Reason)
	if route.Lane == "" {
		route.Lane = r.lane.name
	} else {
		route.Lane = r.lane.names.with(route.Lane)
	}
	return route, nil
}

func refList(refs []QueueRef) string {
	texts := make([]string, len(refs))
	for i, ref := range refs {
		texts[i] = ref.String()
	}
	return strings.Join(texts, ", ")
}

// queues returns the lane's part of the list.
func (l *lane) queues(list []txn.Queue) []txn.Queue {
	return l.parts.of(list, func(list []txn.Queue) []txn.Queue {
		var part []txn.Queue
		for _, queue := range list {
			if slices.ContainsFunc(l.refs, func(ref QueueRef) bool { return ref.names(queue) }) {
				part = append(part, queue)
			}
		}
		return part
	})
}

// refused adds the lane to the error of the selector within it, and the member of selector_arg that this one saw.
func (l *lane) refused(err error, from source) error {
	e, ok := errors.AsType[*txn.Error](err)
	if !ok || e.Code == txn.CodeInternal {
		return err
	}
	told := *e
	told.Fields = slices.Clone(e.Fields)
	for i, field := range told.Fields {
		if rest, ok := strings.CutPrefix(field.Pointer, argPointer); ok && from.takesArg() {
			told.Fields[i].Pointer = argPointer + "/arg" + rest
		}
		told.Fields[i].Message = "in the lane " + l.name + ": " + field.Message
	}
	told.Detail = "in the lane " + l.name + ": " + e.Detail
	if e.Code == txn.CodeInvalidRequest && len(told.Fields) > 0 {
		told.Detail = txn.Invalid(told.Fields...).Detail
	}
	return &told
}
