package selector

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/txsvc/txsvc/internal/txn"
)

// SplitsKeys says why messages of one shard key may go to different queues while the topic's queues stay the same, and is
// empty when they cannot. A user's own type chooses by the shard key when it is given nothing else: see ByKey.
func (s Spec) SplitsKeys() string {
	switch cmp.Or(s.Type, Default) {
	case TypeRoundRobin:
		return "round_robin does not"
	case TypeQueue:
		return "queue goes by selector_arg"
	case TypeLanes:
		if s.Lanes == nil {
			return ""
		}
		if s.Lanes.By != byShardKey {
			return fmt.Sprintf("lanes by %s go by more than the key; lanes by %s do not", s.Lanes.By, byShardKey)
		}
		if why := s.Lanes.Within.SplitsKeys(); why != "" {
			return "within its lanes, " + why
		}
	}
	return ""
}

// ByKey returns a selector that sees the shard key alone, whatever else the message has.
func ByKey(s txn.Selector) txn.Selector { return byKey{s} }

type byKey struct{ txn.Selector }

func (b byKey) Select(queues []txn.Queue, in txn.SelectorInput) (txn.Route, error) {
	return b.Selector.Select(queues, txn.SelectorInput{ShardKey: in.ShardKey})
}

// specText has what of a spec decides about queues.
type specText struct {
	Type    string     `json:"type"`
	By      string     `json:"by,omitempty"`
	Lanes   []laneText `json:"lanes,omitempty"`
	Within  *specText  `json:"within,omitempty"`
	Options any        `json:"options,omitempty"`
}

type laneText struct {
	Name   string   `json:"name"`
	Queues []string `json:"queues"`
	Match  []string `json:"match"`
	Share  float64  `json:"share,omitempty"`
}

// Text is the selector's configuration as JSON: two specs with one text send a key to the same queue. What a user's own
// type does with its options is not seen.
func (s Spec) Text() (string, error) {
	t, err := s.text()
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(t)
	return string(text), err
}

func (s Spec) text() (*specText, error) {
	t := &specText{Type: cmp.Or(s.Type, Default)}
	if s.Lanes != nil {
		t.By = s.Lanes.By
		for i := range s.Lanes.Lanes {
			lane := &s.Lanes.Lanes[i]
			refs := make([]string, len(lane.Queues))
			for i, ref := range lane.Queues {
				refs[i] = ref.String()
			}
			t.Lanes = append(t.Lanes, laneText{lane.Name, refs, lane.rules(), lane.Share})
		}
		within, err := s.Lanes.Within.text()
		if err != nil {
			return nil, err
		}
		t.Within = within
	}
	if s.Options != nil {
		var options map[string]any
		if err := s.Options(&options); err != nil {
			return nil, fmt.Errorf("the options of selector %s: %w", s.Type, err)
		}
		t.Options = options
	}
	return t, nil
}
