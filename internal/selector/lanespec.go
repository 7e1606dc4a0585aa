package selector

import (
	"errors"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/txsvc/txsvc/internal/txn"
)

// LaneDefault is the name of the lane for all messages that no other lane takes.
const LaneDefault = "default"

// Lanes are the options of TypeLanes.
type Lanes struct {
	By     string // what names the lane: "selector_arg", "shard_key", "header:NAME" or "payload:/json/pointer"
	Lanes  []Lane // in the order of the file, in which shares follow each other
	Within Spec   // how a queue is picked inside the lane; its OnChange is not used
}

// Lane is a named set of queues, with the rules for its messages.
type Lane struct {
	Name   string
	Queues []QueueRef
	// Match has exact values, and prefixes that end in *. Nil: the lane's own name. Empty: none.
	Match []string
	// Share is the percentage of shard keys that no value names which go here, with at most four decimals.
	Share float64
}

// QueueRef names a queue: an id on every broker that has it, or on one.
type QueueRef struct {
	Broker string // empty: every broker
	ID     int
}

// ParseQueueRef reads the form "broker-a:0".
func ParseQueueRef(text string) (QueueRef, error) {
	i := strings.LastIndexByte(text, ':')
	id, err := strconv.Atoi(text[i+1:])
	if i < 1 || err != nil || id < 0 {
		return QueueRef{}, errors.New("must be a queue's id, or broker and id like broker-a:0")
	}
	return QueueRef{text[:i], id}, nil
}

// String returns the form that a configuration has.
func (q QueueRef) String() string {
	if q.Broker == "" {
		return strconv.Itoa(q.ID)
	}
	return q.Broker + ":" + strconv.Itoa(q.ID)
}

func (q QueueRef) names(queue txn.Queue) bool {
	return q.ID == queue.ID && (q.Broker == "" || q.Broker == queue.Broker)
}

// overlaps reports whether both can name the same queue.
func (q QueueRef) overlaps(other QueueRef) bool {
	return q.ID == other.ID && (q.Broker == "" || other.Broker == "" || q.Broker == other.Broker)
}

// rules returns the lane's values and prefixes.
func (l *Lane) rules() []string {
	if l.Match == nil {
		return []string{l.Name}
	}
	return l.Match
}

// shareUnit is the smallest share, in per cent.
const (
	shareUnit  = 0.0001
	shareUnits = 1_000_000 // in 100 %
)

func (l *Lane) units() int { return int(math.Round(l.Share / shareUnit)) }

var laneName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// laneCheck collects the mistakes in lanes.
type laneCheck struct {
	wrong   []*OptionError
	matches map[string]string // rule to the lane that has it
	names   map[string]bool
	units   int
}

func (c *laneCheck) add(pointer, format string, args ...any) {
	c.wrong = append(c.wrong, OptionErrorf(pointer, format, args...))
}

// check returns all mistakes, except those in the selector within the lanes.
func (l *Lanes) check() []*OptionError {
	c := &laneCheck{matches: make(map[string]string), names: make(map[string]bool)}
	if l.By == "" {
		c.add("", "by is required")
	} else if _, err := parseSource(l.By); err != nil {
		c.add("/by", "%w", err)
	}
	switch {
	case l.Lanes == nil:
		c.add("", "lanes is required")
	case len(l.Lanes) == 0:
		c.add("/lanes", "at least one lane is needed")
	}
	for i := range l.Lanes {
		lane := &l.Lanes[i]
		at := at("/lanes", lane.Name)
		c.name(at, lane)
		c.queues(at, lane)
		c.match(at, lane)
		c.share(at, lane)
	}
	c.inner(l)
	return c.wrong
}

// at returns the pointer to a member.
func at(pointer, member string) string {
	return string(jsontext.Pointer(pointer).AppendToken(member))
}

func (c *laneCheck) name(at string, lane *Lane) {
	if !laneName.MatchString(lane.Name) {
		c.add(at, "the name of a lane has at most 64 letters, digits and . _ - and begins with a letter or a digit")
	}
	if c.names[lane.Name] {
		c.add(at, "there is a lane with this name already")
	}
	c.names[lane.Name] = true
}

func (c *laneCheck) queues(at string, lane *Lane) {
	if lane.Queues == nil {
		c.add(at, "queues is required")
		return
	}
	at += "/queues"
	if len(lane.Queues) == 0 {
		c.add(at, "at least one queue is needed")
	}
	for i, queue := range lane.Queues {
		if queue.ID < 0 {
			c.add(at+"/"+strconv.Itoa(i), "the id of a queue is not negative")
		}
		if first := slices.IndexFunc(lane.Queues[:i], queue.overlaps); first >= 0 {
			c.add(at+"/"+strconv.Itoa(i), "%s is there already, by %s", queue, lane.Queues[first])
		}
	}
}

// match also checks the lane's own name, because that is a rule when the lane has no others.
func (c *laneCheck) match(at string, lane *Lane) {
	if lane.Name == LaneDefault && lane.Match != nil {
		c.add(at+"/match", "the default lane takes what no other lane takes: it has no match")
		return
	}
	for i, rule := range lane.rules() {
		place := at
		if lane.Match != nil {
			place = at + "/match/" + strconv.Itoa(i)
		}
		if star := strings.IndexByte(rule, '*'); star >= 0 && star != len(rule)-1 {
			c.add(place, "a * may only stand at the end, where it makes a prefix")
		}
		if rule == "" {
			c.add(place, "must not be empty")
		}
		switch owner, taken := c.matches[rule]; {
		case taken && owner == lane.Name:
			c.add(place, "%s is there already", rule)
		case taken:
			c.add(place, "%s belongs to the lane %s already", rule, owner)
		}
		c.matches[rule] = lane.Name
	}
}

func (c *laneCheck) share(at string, lane *Lane) {
	at += "/share"
	switch {
	case math.IsNaN(lane.Share) || lane.Share < 0 || lane.Share > 100:
		c.add(at, "must be from 0 to 100, in per cent")
		return
	case math.Abs(lane.Share/shareUnit-float64(lane.units())) > 1e-3:
		c.add(at, "must have at most four decimals")
	case lane.Name == LaneDefault && lane.Share != 0:
		c.add(at, "the default lane has the keys that no other lane has: it has no share")
	}
	before := c.units
	if c.units += lane.units(); c.units > shareUnits && before <= shareUnits {
		c.add(at, "the shares up to here are %s %%, more than 100", percent(float64(c.units)*shareUnit))
	}
}

// inner checks that every message of two lanes, one within the other, has a queue.
func (c *laneCheck) inner(l *Lanes) {
	if l.Within.Type != TypeLanes || l.Within.Lanes == nil {
		return
	}
	for _, outer := range l.Lanes {
		for _, inner := range l.Within.Lanes.Lanes {
			common := slices.ContainsFunc(inner.Queues, func(q QueueRef) bool { return slices.ContainsFunc(outer.Queues, q.overlaps) })
			if !common {
				c.add(at("/within/lanes", inner.Name), "has no queue of the lane %s, which is around it", outer.Name)
			}
		}
	}
}

// percent writes a share without zeros at its end.
func percent(share float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(share, 'f', 4, 64), "0"), ".")
}

// Warnings returns places that are allowed and probably not meant.
func (s Spec) Warnings() []*OptionError {
	if s.Type != TypeLanes || s.Lanes == nil {
		return nil
	}
	c := &laneCheck{}
	lanes := s.Lanes.Lanes
	for i := range lanes {
		lane := &lanes[i]
		if len(lane.rules()) == 0 && lane.Share == 0 && lane.Name != LaneDefault {
			c.add(at("/lanes", lane.Name), "nothing goes to this lane: it has neither match nor share")
		}
		for j, queue := range lane.Queues {
			for _, other := range lanes[:i] {
				if slices.ContainsFunc(other.Queues, queue.overlaps) {
					c.add(at("/lanes", lane.Name)+"/queues/"+strconv.Itoa(j), "the lane %s has this queue, too", other.Name)
				}
			}
		}
	}
	return append(c.wrong, beneath("/within", s.Lanes.Within.Warnings())...)
}
