package selector

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/txsvc/txsvc/internal/txn"
)

// SplitsKeys returns why the selector may send messages of one shard key to different queues while the topic's queues
// stay the same, or "" when it cannot.
func SplitsKeys(s txn.Selector) string {
	if splitter, ok := s.(interface{ SplitsKeys() string }); ok {
		return splitter.SplitsKeys()
	}
	return ""
}

// SplitsKeys says so.
func (*roundRobin) SplitsKeys() string { return "round_robin does not" }

// SplitsKeys says so.
func (named) SplitsKeys() string { return "queue goes by selector_arg" }

// SplitsKeys says so unless both the lane and the queue within it are chosen by the key.
func (l *lanes) SplitsKeys() string { return l.splits }

func lanesSplit(by string, inner txn.Selector) string {
	if by != byShardKey {
		return fmt.Sprintf("lanes by %s go by more than the key; lanes by %s do not", by, byShardKey)
	}
	if why := SplitsKeys(inner); why != "" {
		return "within its lanes, " + why
	}
	return ""
}

// ByKey returns a selector that sees only the shard key of a message.
func ByKey(s txn.Selector) txn.Selector { return byKey{s} }

type byKey struct{ txn.Selector }

func (b byKey) Select(queues []txn.Queue, in txn.SelectorInput) (txn.Route, error) {
	return b.Selector.Select(queues, txn.SelectorInput{ShardKey: in.ShardKey})
}

// specText has the parts of a spec that decide about queues.
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

// Text returns the selector's configuration as JSON. Two specs with the same text send a key to the same queue, as long
// as the code of a user's own type stays the same.
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
