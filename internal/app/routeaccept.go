package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/txsvc/txsvc/internal/postgres/accepted"
	"github.com/txsvc/txsvc/internal/rocketmq"
	"github.com/txsvc/txsvc/internal/routing"
	"github.com/txsvc/txsvc/internal/txn"
)

type routeAcceptCommand struct {
	Topic  string        `arg:"" help:"The topic."`
	Pause  time.Duration `default:"30s" help:"How long keys that move are refused before they go to their new queues; at least 10s."`
	DryRun bool          `help:"Only show what would change."`
	routeSource
}

// Run shows the accepted and the present queues, and accepts the present ones.
func (c *routeAcceptCommand) Run(ctx context.Context, code Code, out output) error {
	if err := c.complete(ctx, out); err != nil {
		return err
	}
	if leastPause := txn.DefaultTiming().AcceptPause; c.Pause < leastPause {
		return fmt.Errorf("--pause %s is shorter than replicas take to learn of it: give at least %s", c.Pause, leastPause)
	}
	plain, kinds, err := c.destinations(code, c.Topic)
	if err != nil {
		return err
	}
	if err := c.database.validate(); err != nil {
		return err
	}
	return c.connected(ctx, out, func(mq *rocketmq.Client) error {
		queues, err := c.present(ctx, mq)
		if err != nil {
			return err
		}
		users := refusing(plain, kinds)
		selector, err := orderedSelector(ctx, mq, users)
		if err != nil {
			return err
		}
		return c.withAccepted(ctx, out, func(store *accepted.Lists) error {
			return c.accept(ctx, out.stdout, store, users, queues, selector)
		})
	})
}

// present returns the queues that the topic has now, when no broker of it is known to be away.
func (c *routeAcceptCommand) present(ctx context.Context, mq *rocketmq.Client) ([]txn.Queue, error) {
	queues, err := mq.Queues(ctx, c.Topic)
	if err != nil {
		return nil, told(err)
	}
	layout, err := mq.Topic(ctx, c.Topic)
	if err != nil {
		return nil, told(err)
	}
	if len(layout.Absent) > 0 {
		return nil, fmt.Errorf("topic %s has queues on brokers that have no master now: %s", c.Topic, strings.Join(layout.Absent, ", "))
	}
	return queues, nil
}

// refusing returns the destinations that choose from accepted lists, by whose they are.
func refusing(plain txn.Destination, kinds []*txn.Kind) map[string]txn.Destination {
	found := make(map[string]txn.Destination)
	if plain.OnChange == txn.OnChangeRefuse {
		found["messages without a kind"] = plain
	}
	for _, k := range kinds {
		if k.OnChange == txn.OnChangeRefuse {
			found["kind "+k.Name] = k.Destination
		}
	}
	return found
}

// orderedSelector returns the selector of ordered messages as text. All ordered kinds of a topic share it. It is empty when
// there are none.
func orderedSelector(ctx context.Context, mq *rocketmq.Client, users map[string]txn.Destination) (string, error) {
	for _, d := range users {
		if d.OrderedSelector == "" {
			continue
		}
		if !d.Java {
			return routing.OrderedSelector(d, ""), nil
		}
		java, err := mq.JavaQueues(ctx, d.Topic)
		return routing.OrderedSelector(d, java.Order), told(err)
	}
	return "", nil
}

func (c *routeAcceptCommand) accept(ctx context.Context, w io.Writer, store *accepted.Lists, users map[string]txn.Destination, queues []txn.Queue, selector string) error {
	lists, err := store.AcceptedQueues(ctx, []string{c.Topic})
	if err != nil {
		return err
	}
	before := lists[c.Topic]
	fmt.Fprintf(w, "topic   %s\nbefore  %s (version %d)\nafter   %s\n", c.Topic, routing.Describe(before.Queues), before.Version, routing.Describe(queues))
	if len(users) == 0 {
		fmt.Fprintln(w, "no selector of the topic has on_change: refuse: the list is kept, and not used")
	}
	other := selector != "" && before.Selector != "" && selector != before.Selector
	if other {
		fmt.Fprintf(w, "selector of ordered messages\n  before  %s\n  after   %s\n", before.Selector, selector)
	}
	if slices.Equal(before.Queues, queues) && !other {
		fmt.Fprintln(w, "nothing changes")
		return nil
	}
	if other {
		fmt.Fprintln(w, "moves   keys of ordered kinds, how many cannot be told: another selector chose before")
	} else {
		writeMoves(w, users, before.Queues, queues)
	}
	if c.DryRun {
		return nil
	}
	list, err := store.Accept(ctx, c.Topic, queues, selector, before.Version, c.Pause)
	if errors.Is(err, accepted.ErrOtherVersion) {
		return fmt.Errorf("%w: run the command again, and look at what it shows", err)
	}
	if err != nil {
		return err
	}
	if list.Pause > 0 && other {
		fmt.Fprintf(w, "accepted as version %d; in use in %s, ordered messages of the topic are refused until then\n", list.Version, list.Pause.Round(time.Second))
		return nil
	}
	if list.Pause > 0 {
		fmt.Fprintf(w, "accepted as version %d; in use in %s, keys that move are refused until then\n", list.Version, list.Pause.Round(time.Second))
		return nil
	}
	fmt.Fprintf(w, "accepted as version %d\n", list.Version)
	return nil
}

// sampleKeys is the number of made-up keys that represent the future ones.
const sampleKeys = 10_000

func writeMoves(w io.Writer, users map[string]txn.Destination, before, after []txn.Queue) {
	if len(before) == 0 {
		return
	}
	keys := make([]string, sampleKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%d", i)
	}
	for _, name := range slices.Sorted(maps.Keys(users)) {
		s := users[name].Selector
		if share, ok := routing.Moved(s, before, after, keys); ok {
			fmt.Fprintf(w, "moves   %.1f %% of keys, of %s (%s, %d made-up keys)\n", 100*share, name, s.Name(), sampleKeys)
		} else {
			fmt.Fprintf(w, "moves   keys of %s, how many cannot be told: %s does not choose by the key alone\n", name, s.Name())
		}
	}
}
