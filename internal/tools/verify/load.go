package verify

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Distributions of the shard keys.
const (
	Uniform = "uniform" // every key as often as every other
	Zipf    = "zipf"    // the k-th key in proportion to 1/k
	Hot     = "hot"     // one key gets a tenth of all, the others share the rest
)

// Load describes the requests. The same Load (with the same Run) makes the same requests. A zero field, other than
// shares, is replaced by the default given with it.
type Load struct {
	Run  string // part of every id; up to 20 of a-z and 0-9; default: from the time
	Seed uint64 // of all random choices

	Kinds        []KindLoad
	AllKinds     bool   // adds all other kinds that a payload can be made for; implied without Kinds
	Keys         int    // 1000
	Distribution string // Uniform

	Count       int           // transactions; 0: as many as Duration allows
	Duration    time.Duration // 0: until Count is reached
	Rate        float64       // transactions per second; 0: as fast as Concurrency allows
	Concurrency int           // transactions worked on at once; 32

	RequestTimeout time.Duration // of one request; 15 s
	RetryFor       time.Duration // after which a transaction without a final answer is left undecided; 2 min

	Shares Shares
}

// KindLoad is one kind of the load. Templates are JSON with placeholders: {{id}}, {{shard_key}}, {{n}}, {{run}},
// {{anchor}}, {{anchor_key}}, {{pad:N}}; see docs/verify.md.
type KindLoad struct {
	Name        string
	Weight      int    // 1
	Payload     string // template; default: the shipped one for the shipped kinds
	Rejected    string // template of a payload that the local transaction refuses; empty: none are sent
	SelectorArg string // template of selector_arg; empty: none
	Table       string // of the business change, with the transaction's id in its column id; default: that of the shipped kinds
	Ordered     bool   // if the service does not say so
}

// Shares has the parts of the transactions, 0 to 1, that are sent like unusual clients send them.
type Shares struct {
	Duplicate float64 `json:"duplicate"` // to two replicas at once, with one id
	Mismatch  float64 `json:"mismatch"`  // followed by another request with the same id: 422
	HangUp    float64 `json:"hang_up"`   // the client is gone before the answer; half of them come back with the id
	Rejected  float64 `json:"rejected"`  // the local transaction refuses: 422, and never visible
	Repeat    float64 `json:"repeat"`    // the same request once more after its answer
	Ask       float64 `json:"ask"`       // followed by a GET
}

// DefaultShares are those of txsvc verify.
func DefaultShares() Shares {
	return Shares{Duplicate: 0.03, Mismatch: 0.01, HangUp: 0.02, Rejected: 0.03, Repeat: 0.03, Ask: 0.03}
}

func (s Shares) list() []float64 {
	return []float64{s.Duplicate, s.Mismatch, s.HangUp, s.Rejected, s.Repeat, s.Ask}
}

var runName = regexp.MustCompile(`^[a-z0-9]{1,20}$`)

func (l *Load) setDefaults(now time.Time) {
	if l.Run == "" {
		l.Run = now.UTC().Format("0102t150405") + fmt.Sprintf("%03d", now.Nanosecond()/1e6)
	}
	setDefault(&l.Keys, 1000)
	setDefault(&l.Distribution, Uniform)
	setDefault(&l.Concurrency, 32)
	setDefault(&l.RequestTimeout, 15*time.Second)
	setDefault(&l.RetryFor, 2*time.Minute)
	for i := range l.Kinds {
		setDefault(&l.Kinds[i].Weight, 1)
	}
}

func setDefault[T comparable](value *T, def T) {
	var zero T
	if *value == zero {
		*value = def
	}
}

// Limits of a load. Numbers of transactions are kept in 32 bits.
const (
	maxCount = 1 << 30
	maxKeys  = 10_000_000
)

func (l *Load) validate() error {
	switch {
	case !runName.MatchString(l.Run):
		return fmt.Errorf("run %q: up to 20 characters of a-z and 0-9 are allowed", l.Run)
	case l.Count < 0 || l.Count > maxCount:
		return fmt.Errorf("count %d: 0 to %d are allowed", l.Count, maxCount)
	case l.Count == 0 && l.Duration <= 0:
		return errors.New("a load needs a count or a duration")
	case l.Keys < 1 || l.Keys > maxKeys:
		return fmt.Errorf("keys %d: 1 to %d are allowed", l.Keys, maxKeys)
	case l.Distribution != Uniform && l.Distribution != Zipf && l.Distribution != Hot:
		return fmt.Errorf("distribution %q: it is one of uniform, zipf, hot", l.Distribution)
	case l.Rate < 0 || l.Concurrency < 1:
		return fmt.Errorf("rate %g and concurrency %d must not be negative", l.Rate, l.Concurrency)
	}
	sum := 0.0
	for _, share := range l.Shares.list() {
		if share < 0 || share > 1 {
			return fmt.Errorf("a share of %g: 0 to 1 are allowed", share)
		}
		sum += share
	}
	if sum > 1 {
		return fmt.Errorf("the shares are %g together: at most 1 is allowed", sum)
	}
	return nil
}
