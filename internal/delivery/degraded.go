package delivery

import (
	"maps"
	"slices"
)

// Degraded is a reason for which deliveries are slower or less certain, while requests can be served.
type Degraded struct {
	Name   string // of what has it, e.g. "delivery:broker-a"
	Detail string // for anybody: no secret, no payload
}

// Degraded returns the reasons that there are now, sorted by name.
func (s *Service) Degraded() []Degraded {
	var list []Degraded
	brokers := s.evidence.Degraded()
	for _, broker := range slices.Sorted(maps.Keys(brokers)) {
		list = append(list, Degraded{Name: "delivery:" + broker, Detail: brokers[broker]})
	}
	if s.checkbacks.foreign.isRecent() {
		list = append(list, Degraded{Name: "producer_group", Detail: "brokers ask about half messages of another service or database, which uses the " +
			"same producer group: some of ours are asked of it, and decided late; give each its own TXSVC_ROCKETMQ_GROUP"})
	}
	return list
}
