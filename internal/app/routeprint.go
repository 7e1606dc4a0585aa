package app

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/txsvc/txsvc/internal/routing"
	"github.com/txsvc/txsvc/internal/txn"
)

// even is the probability below which a spread is not put down to chance.
const even = 0.01

// printRouteJSON prints what POST /v1/routes/preview answers.
func printRouteJSON(w io.Writer, topic string, route txn.Route, queues int) error {
	var lane *string
	if route.Lane != "" {
		lane = &route.Lane
	}
	return json.NewEncoder(w).Encode(map[string]any{
		"topic": topic, "queue": map[string]any{"broker": route.Queue.Broker, "id": route.Queue.ID}, "lane": lane,
		"selector": route.Selector, "reason": route.Reason, "queues": queues,
	})
}

// printSpread prints a table with a histogram per lane, and says what to think of it.
func printSpread(w io.Writer, d routing.Distribution) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d keys\n", d.Keys)
	for _, lane := range d.Lanes {
		writeLane(&b, &lane, d.Keys)
	}
	for _, why := range slices.Sorted(maps.Keys(d.Refused)) {
		fmt.Fprintf(&b, "\n%d refused: %s\n", d.Refused[why], why)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// barWidth is how long the fullest queue's bar is, in characters.
const barWidth = 40

func writeLane(b *strings.Builder, lane *routing.LaneShare, all int) {
	name, fullest := len("queue"), 1
	for _, q := range lane.Queues {
		name, fullest = max(name, len(q.Queue.String())), max(fullest, q.Keys)
	}
	b.WriteByte('\n')
	if lane.Lane != "" {
		fmt.Fprintf(b, "lane %s: %d keys, %.1f %%\n", lane.Lane, lane.Keys, 100*float64(lane.Keys)/float64(all))
	}
	fmt.Fprintf(b, "%-*s  %9s  %7s\n", name, "queue", "keys", "share")
	for _, q := range lane.Queues {
		line := fmt.Sprintf("%-*s  %9d  %5.1f %%  %s", name, q.Queue, q.Keys, 100*float64(q.Keys)/float64(lane.Keys),
			strings.Repeat("#", q.Keys*barWidth/fullest))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if len(lane.Queues) < 2 {
		return
	}
	fmt.Fprintf(b, "fullest is %.2f times the mean; chi-square %.1f with %d degrees of freedom, p = %.3f: %s\n",
		lane.Skew, lane.Chi2, len(lane.Queues)-1, lane.P, evenness(lane))
}

func evenness(lane *routing.LaneShare) string {
	if lane.P >= even {
		return "as even as chance makes it"
	}
	return "less even than chance makes it"
}

func printSpreadJSON(w io.Writer, d routing.Distribution) error {
	lanes := make([]map[string]any, 0, len(d.Lanes))
	for _, l := range d.Lanes {
		queues := make([]map[string]any, 0, len(l.Queues))
		for _, q := range l.Queues {
			queues = append(queues, map[string]any{"broker": q.Queue.Broker, "id": q.Queue.ID, "keys": q.Keys})
		}
		var name *string
		if l.Lane != "" {
			name = &l.Lane
		}
		lanes = append(lanes, map[string]any{
			"lane": name, "keys": l.Keys, "queues": queues, "skew": l.Skew, "chi_square": l.Chi2,
			"degrees_of_freedom": len(l.Queues) - 1, "p": l.P, "even": l.P >= even,
		})
	}
	refused := d.Refused
	if refused == nil {
		refused = map[string]int{}
	}
	return json.NewEncoder(w).Encode(map[string]any{"keys": d.Keys, "lanes": lanes, "refused": refused})
}
