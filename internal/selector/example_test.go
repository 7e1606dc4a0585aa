package selector_test

import (
	"fmt"
	"strings"

	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

// byRegion sends each region's keys, which begin with its name, to a queue of its own.
type byRegion struct{ queues map[string]int }

// newByRegion is the selector.Factory: it reads the options and says what is wrong with them.
func newByRegion(options selector.Decode) (txn.Selector, error) {
	var o struct {
		Regions map[string]int `yaml:"regions"` // name to index
	}
	if err := options(&o); err != nil {
		return nil, err
	}
	for name, index := range o.Regions {
		if index < 0 {
			return nil, selector.OptionErrorf("/regions/"+name, "must not be negative")
		}
	}
	return byRegion{o.Regions}, nil
}

func (byRegion) Name() string { return "by_region" }

// Select looks at nothing but what it is given, so every replica chooses the same.
func (s byRegion) Select(queues []txn.Queue, in txn.SelectorInput) (txn.Route, error) {
	region, _, _ := strings.Cut(in.ShardKey, "-")
	index, ok := s.queues[region]
	if !ok {
		return txn.Route{}, txn.Invalid(txn.FieldError{Pointer: "/shard_key", Message: "must begin with a known region"})
	}
	if index >= len(queues) {
		return txn.Route{}, txn.BrokerUnavailable(nil, "the topic has no queue for a region")
	}
	return txn.Route{Queue: queues[index], Reason: "the region's queue"}, nil
}

// A type of selector of one's own: the registry is selectors in internal/app/kinds.go, and the configuration says
//
//	selector: {type: by_region, regions: {eu: 0, us: 1}}
func Example_ownSelector() {
	selectors := selector.Registry{"by_region": newByRegion}

	// The configuration's reader does this; options come from its mapping.
	options := func(into any) error {
		into.(*struct { //nolint:forcetypeassert // an example
			Regions map[string]int `yaml:"regions"`
		}).Regions = map[string]int{"eu": 0, "us": 1}
		return nil
	}
	s, err := selectors.New(selector.Spec{Type: "by_region", Options: options})
	if err != nil {
		fmt.Println(err)
		return
	}
	queues := []txn.Queue{{Broker: "broker-a", ID: 0}, {Broker: "broker-a", ID: 1}}
	for _, key := range []string{"us-4711", "mars-1"} {
		route, err := s.Select(queues, txn.SelectorInput{ShardKey: key})
		fmt.Println(route.Queue, route.Selector, route.Reason, err)
	}
	// Output:
	// broker-a:1 by_region the region's queue <nil>
	// :0   invalid_request: /shard_key: must begin with a known region
}
