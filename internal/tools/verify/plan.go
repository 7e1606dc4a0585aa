package verify

import (
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
)

// plan computes the transaction for each number. The same number always gives the same transaction.
type plan struct {
	run     string
	seed    uint64
	kinds   []Kind
	keys    int
	shares  []float64 // in the order of the plays
	anchors uint32    // the first so many transactions are orders that others refer to
	anchor  int       // index of their kind
	prefix  string    // of all ids

	weights []int     // running sums
	cdf     []float64 // of the keys; nil: uniform
}

// play is the way in which a transaction is sent.
type play uint8

const (
	playDuplicate play = iota // in the order of Shares.list
	playMismatch
	playHangUp
	playRejected
	playRepeat
	playAsk
	playPlain
)

// transaction is the transaction of one number.
type transaction struct {
	n    uint32
	kind uint8 // index
	key  uint32
	play play
	dice uint64 // for all other random choices
}

func newPlan(h *header) (*plan, error) {
	p := &plan{
		run: h.Run, seed: h.Seed, kinds: h.Kinds, keys: h.Keys, shares: h.Shares.list(), anchors: h.Anchors, prefix: "v-" + h.Run + "-",
	}
	sum := 0
	for i := range p.kinds {
		if err := p.kinds[i].compile(); err != nil {
			return nil, err
		}
		if p.kinds[i].Name == anchorKind {
			p.anchor = i
		}
		sum += p.kinds[i].Weight
		p.weights = append(p.weights, sum)
	}
	if sum <= 0 {
		return nil, fmt.Errorf("the weights of the kinds are %d together: at least 1 is needed", sum)
	}
	p.cdf = cdf(h.Distribution, h.Keys)
	return p, nil
}

// hotShare is the share of the one hot key in the distribution Hot.
const hotShare = 0.1

// cdf returns the running sum of the keys' probabilities; nil for equal ones.
func cdf(distribution string, keys int) []float64 {
	if distribution == Uniform || keys == 1 {
		return nil
	}
	list, sum := make([]float64, keys), 0.0
	for i := range list {
		switch {
		case distribution == Zipf:
			sum += 1 / float64(i+1)
		case i == 0:
			sum += hotShare
		default:
			sum += (1 - hotShare) / float64(keys-1)
		}
		list[i] = sum
	}
	return list
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood 2014): neighbouring numbers become unrelated.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unit makes a number in [0, 1) of random bits.
func unit(bits uint64) float64 { return float64(bits>>11) / (1 << 53) }

func (p *plan) transaction(n uint32) transaction {
	first := mix(p.seed ^ mix(uint64(n)))
	second, third := mix(first), mix(mix(first))
	t := transaction{n: n, key: p.drawKey(unit(first)), dice: third, play: playPlain}
	if n < p.anchors {
		t.kind = uint8(p.anchor)
		return t
	}
	weight := int(second % uint64(p.weights[len(p.weights)-1]))
	t.kind = uint8(sort.SearchInts(p.weights, weight+1))
	drawn := unit(mix(third))
	for i, share := range p.shares {
		if drawn < share {
			t.play = play(i)
			break
		}
		drawn -= share
	}
	if t.play == playRejected && p.kinds[t.kind].rejected == nil {
		t.play = playPlain
	}
	return t
}

func (p *plan) drawKey(u float64) uint32 {
	if p.cdf == nil {
		return uint32(u * float64(p.keys))
	}
	i := sort.SearchFloat64s(p.cdf, math.Nextafter(u*p.cdf[len(p.cdf)-1], 2))
	return uint32(min(i, p.keys-1))
}

// id of the transaction with that number. The digits are padded, so that ids sort as they are posted.
func (p *plan) id(n uint32) string { return fmt.Sprintf("%s%09d", p.prefix, n) }

// number returns the number of an id of this run.
func (p *plan) number(id string) (uint32, bool) {
	digits, ok := strings.CutPrefix(id, p.prefix)
	if !ok || len(digits) != 9 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil && n <= maxCount
}

func (p *plan) shardKey(key uint32) string {
	return p.prefix + "k" + strconv.FormatUint(uint64(key), 10)
}

// anchorOf returns the order that the transaction refers to.
func (p *plan) anchorOf(t transaction) uint32 {
	if p.anchors == 0 {
		return 0
	}
	return uint32(mix(t.dice) % uint64(p.anchors))
}

func (p *plan) value(t transaction) func(name string) string {
	return func(name string) string {
		switch name {
		case placeID:
			return p.id(t.n)
		case placeRun:
			return p.run
		case placeN:
			return strconv.FormatUint(uint64(t.n), 10)
		case placeKey:
			return p.shardKey(t.key)
		case placeAnchor:
			return p.id(p.anchorOf(t))
		default:
			return p.shardKey(p.transaction(p.anchorOf(t)).key)
		}
	}
}

// appendPayload appends the payload of the request.
func (p *plan) appendPayload(b []byte, t transaction) []byte {
	from := p.kinds[t.kind].payload
	if t.play == playRejected {
		from = p.kinds[t.kind].rejected
	}
	return from.appendTo(b, p.value(t))
}

// The extras that some transactions carry: a tag of their own, an additional key, a property.
const (
	ownTag       = "verify"
	propertyName = "verify"
)

func (p *plan) tag(t transaction) string {
	if t.dice&3 == 0 {
		return ownTag
	}
	return p.kinds[t.kind].Tag
}

func (p *plan) key(t transaction) string {
	if t.dice>>2&3 == 0 {
		return "n-" + strconv.FormatUint(uint64(t.n), 10)
	}
	return ""
}

func (p *plan) property(t transaction) string {
	if t.dice>>4&3 == 0 {
		return "of-" + strconv.FormatUint(uint64(t.n), 10)
	}
	return ""
}

// body makes the request. With other, it is a different request of the same id: it differs only in local_arg, which no
// message carries. withKind puts the kind into the body, and withID the id.
func (p *plan) body(t transaction, other, withKind, withID bool) []byte {
	k, b := &p.kinds[t.kind], make([]byte, 0, 512)
	field := func(name, value string) {
		b = append(b, `"`+name+`": `...)
		b = append(b, quote(value)...)
		b = append(b, `, `...)
	}
	b = append(b, '{')
	if withKind {
		field("kind", k.Name)
	}
	if withID {
		field("id", p.id(t.n))
	}
	field("shard_key", p.shardKey(t.key))
	if t.dice&3 == 0 {
		field("tag", ownTag)
	}
	if key := p.key(t); key != "" {
		b = append(b, `"keys": [`+quote(key)+`], `...)
	}
	if property := p.property(t); property != "" {
		b = append(b, `"properties": {`+quote(propertyName)+`: `+quote(property)+`}, `...)
	}
	if other {
		b = append(b, `"local_arg": "another request", `...)
	}
	if k.selectorArg != nil {
		b = append(b, `"selector_arg": `...)
		b = k.selectorArg.appendTo(b, p.value(t))
		b = append(b, `, `...)
	}
	b = append(b, `"payload": `...)
	return append(p.appendPayload(b, t), '}')
}

func quote(s string) string {
	quoted, _ := json.Marshal(s) // cannot fail for a string
	return string(quoted)
}
