package faults

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

// lanes is the largest number of faults at once.
const lanes = 3

// planned is an event of a plan, with the pause of its lane before it.
type planned struct {
	event
	quiet time.Duration
}

// plan draws each named fault count times, in rounds that take about the given time. The parameters of a fault depend
// only on the seed and its name. The order depends on everything.
func plan(seed uint64, names []string, count int, round time.Duration) [][]planned {
	var all []planned
	for _, name := range names {
		f, _ := faultNamed(name)
		r := rand.New(rand.NewPCG(seed, hash(name)))
		for range count {
			e := f.draw(r)
			e.fault = name
			all = append(all, planned{event: e, quiet: between(r, 0, 2*time.Second)})
		}
	}
	r := rand.New(rand.NewPCG(seed, hash("order")))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return cutRounds(all, lanes*round)
}

func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

// cutRounds ends a round when its events together take that long.
func cutRounds(all []planned, length time.Duration) [][]planned {
	var rounds [][]planned
	var round []planned
	sum := time.Duration(0)
	for _, e := range all {
		round = append(round, e)
		if sum += e.quiet + e.length; sum >= length {
			rounds, round, sum = append(rounds, round), nil, 0
		}
	}
	if len(round) > 0 {
		rounds = append(rounds, round)
	}
	return rounds
}

// schedule returns a round's events in order, except those whose part of the world another event holds now.
type schedule struct {
	left []planned
	held map[string]bool
}

func newSchedule(round []planned) *schedule {
	return &schedule{left: slices.Clone(round), held: make(map[string]bool)}
}

// take returns the next event, or false when none can begin now.
func (s *schedule) take() (planned, bool) {
	for i, e := range s.left {
		if slices.ContainsFunc(e.holds, func(part string) bool { return s.held[part] }) {
			continue
		}
		for _, part := range e.holds {
			s.held[part] = true
		}
		s.left = slices.Delete(s.left, i, i+1)
		return e, true
	}
	return planned{}, false
}

func (s *schedule) release(e planned) {
	for _, part := range e.holds {
		delete(s.held, part)
	}
}
