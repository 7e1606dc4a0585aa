package delivery

import (
	"maps"
	"slices"
	"time"
)

// Trouble is something that makes deliveries slower or less certain, while requests can be served.
type Trouble struct {
	Name   string // of what has it, e.g. "delivery:broker-a"
	Detail string // for anybody: no secret, no payload
}

// Troubles returns what there is now, sorted by name.
func (r *Resolver) Troubles() []Trouble {
	var list []Trouble
	now := time.Now()
	brokers := r.evidence.troubles(now)
	for _, broker := range slices.Sorted(maps.Keys(brokers)) {
		list = append(list, Trouble{Name: "delivery:" + broker, Detail: brokers[broker]})
	}
	return list
}
