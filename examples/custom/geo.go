package main

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/txsvc/txsvc"
)

// Geo sends the keys of a region, which begin with its name and a dash, to the region's queues:
//
//	selector: {type: geo, regions: {eu: [0, 1], us: [2, 3]}}
type Geo struct {
	regions map[string][]int // ids of queues, by region
}

// NewGeo reads the options and says what is wrong with them.
func NewGeo(options txsvc.Options) (txsvc.Selector, error) {
	var o struct {
		Regions map[string][]int `yaml:"regions"`
	}
	if err := options.Decode(&o); err != nil {
		return nil, err
	}
	if len(o.Regions) == 0 {
		return nil, txsvc.OptionErrorf("", "regions is required")
	}
	for name, queues := range o.Regions {
		for i, id := range queues {
			if id < 0 {
				return nil, txsvc.OptionErrorf(fmt.Sprintf("/regions/%s/%d", name, i), "the id of a queue is not negative")
			}
		}
	}
	return Geo{o.Regions}, nil
}

// ByShardKey is true: Select looks at nothing else.
func (Geo) ByShardKey() bool { return true }

// Select picks one of the region's queues by a hash of the key.
func (g Geo) Select(queues []txsvc.Queue, in txsvc.SelectorInput) (txsvc.Choice, error) {
	region, _, _ := strings.Cut(in.ShardKey, "-")
	ids, known := g.regions[region]
	if !known {
		return txsvc.Choice{}, txsvc.Invalid(txsvc.FieldError{Pointer: "/shard_key", Message: "must begin with a known region and a dash"})
	}
	queues = slices.DeleteFunc(queues, func(q txsvc.Queue) bool { return !slices.Contains(ids, q.ID) })
	if len(queues) == 0 {
		return txsvc.Choice{}, txsvc.NoQueue("the topic has none of the queues of the region %s now", region)
	}
	h := fnv.New64a()
	h.Write([]byte(in.ShardKey))
	i := h.Sum64() % uint64(len(queues))
	return txsvc.Choice{Queue: queues[i], Lane: region, Reason: "the region's queues"}, nil
}
