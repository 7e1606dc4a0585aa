package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// consumed is a message as a consumer of one of the public clients sees it.
type consumed struct {
	Topic, Broker, Queue     string
	MessageID, TransactionID string
	Tag, Keys, Body          string
	ShardKey, TxID, Kind     string
	Region, Emoji            string // the user's properties
}

// subscription is one consumer: a group that nobody used before.
type subscription struct {
	group   string
	ordered bool
	tag     string
}

// inbox keeps what consumers got, by group. A client may hand a message out twice, for which a queue's offset is the
// witness: the second time does not count.
type inbox struct {
	mu    sync.Mutex
	line  []byte // the beginning of one
	noise bytes.Buffer
	err   error
	got   map[string][]consumed
	seen  map[string]bool
}

func (b *inbox) of(group string) []consumed {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got[group])
}

// TestAtHomeInRocketMQ posts orders, and lets consumers of both public clients and mqadmin find them.
func TestAtHomeInRocketMQ(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	created := e.postTagged(s, "created")
	amended := e.postTagged(s, "amended") // after the others: in every queue they stand behind them
	e.settle(recoverLimit)
	for name, program := range map[string]func(*testing.T) *exec.Cmd{"go": goConsumers, "java": javaConsumers} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			subscriptions := []subscription{
				{group: e.group + "-" + name + "-concurrent", tag: "created"},
				{group: e.group + "-" + name + "-ordered", tag: "created", ordered: true},
				{group: e.group + "-" + name + "-other", tag: "amended"},
				{group: e.group + "-" + name + "-all", tag: "*", ordered: true},
			}
			b := e.consume(t, program(t), subscriptions)
			compareConsumed(t, b, subscriptions[0], created)
			compareConsumed(t, b, subscriptions[1], created)
			compareConsumed(t, b, subscriptions[2], amended)
			compareConsumed(t, b, subscriptions[3], slices.Concat(created, amended))
		})
	}
	t.Run("mqadmin", func(t *testing.T) {
		t.Parallel()
		m := created[len(created)-1]
		keys := strings.Fields(m.Keys)
		e.assertQueried(t, m, "queryMsgByUniqueKey", "-i", m.MessageID, "-d", t.TempDir())
		e.assertQueried(t, m, "queryMsgByKey", "-k", m.TxID)
		e.assertQueried(t, m, "queryMsgByKey", "-k", keys[len(keys)-1])
	})
}

// postTagged posts orders one after the other, in turns for several shard keys, and returns what consumers are to see.
func (e *env) postTagged(s *service, tag string) []consumed {
	e.t.Helper()
	const each = 6
	var want []consumed
	for i := range each {
		for _, shardKey := range []string{"customer-1", "Kunde Ü", "顧客 🚚", "customer-4", "customer-5"} {
			m := consumed{
				Topic: e.topic, Tag: tag, ShardKey: shardKey, Kind: "order.create", Region: "Köln \"5\" \\ =", Emoji: "🚚",
				Body: fmt.Sprintf("{\"currency\":\t\"EUR\", \"customer\": %q,\r\n \"items\": [ {\"sku\": \"Tee \\u00fc %d 🚚\", \"quantity\": 1, \"amount_minor\": 450} ]  }", shardKey, i),
			}
			key := fmt.Sprintf("%s-%d-%s", tag, i, e.topic)
			properties, err := json.Marshal(map[string]string{"Größe": m.Region, "emoji": m.Emoji})
			if err != nil {
				e.t.Fatal(err)
			}
			a := s.mustPost("/v1/orders", fmt.Sprintf(`{"shard_key": %q, "tag": %q, "keys": ["Schlüssel", %q], "properties": %s, "payload": %s}`,
				shardKey, tag, key, properties, m.Body), http.StatusCreated)
			m.TxID, m.MessageID, m.TransactionID, m.Broker, m.Queue = a.ID, a.MessageID, a.MessageID, a.Queue.Broker, strconv.Itoa(a.Queue.ID)
			m.Keys = a.ID + " Schlüssel " + key
			want = append(want, m)
		}
	}
	return want
}

// compareConsumed waits until the consumer has got as many messages as it should, and compares them all: those of an
// ordered consumer, of each shard key, in the order in which they were posted.
func compareConsumed(t *testing.T, b *inbox, s subscription, want []consumed) {
	t.Helper()
	var got []consumed
	await.Success(t, time.Minute, func() error {
		if got = b.of(s.group); len(got) < len(want) {
			return fmt.Errorf("consumer %s has got %d messages, want %d", s.group, len(got), len(want))
		}
		return nil
	})
	if diff := cmp.Diff(byShardKey(want, s.ordered), byShardKey(got, s.ordered)); diff != "" {
		t.Errorf("messages of consumer %s (-want +got):\n%s", s.group, diff)
	}
}

func byShardKey(messages []consumed, ordered bool) map[string][]consumed {
	all := make(map[string][]consumed)
	for _, m := range messages {
		all[m.ShardKey] = append(all[m.ShardKey], m)
	}
	if !ordered {
		for _, list := range all {
			slices.SortFunc(list, func(a, b consumed) int { return strings.Compare(a.TxID, b.TxID) })
		}
	}
	return all
}

// goConsumers builds the program with the consumers of rocketmq-client-go.
func goConsumers(t *testing.T) *exec.Cmd {
	t.Helper()
	path := filepath.Join(t.TempDir(), "consumers")
	if err := build(path, "github.com/txsvc/txsvc/internal/tools/e2e/consumers"); err != nil {
		t.Fatal(err)
	}
	return exec.Command(path)
}

// javaConsumers is the same program in Java, run from its source. Its home is a directory of the test: the client logs there.
func javaConsumers(t *testing.T) *exec.Cmd {
	t.Helper()
	return exec.Command("java", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Duser.home="+t.TempDir(),
		"-cp", stacktest.Shared(t).Classpath, "consumers/Consumers.java")
}

// consume runs a program with these consumers until the test ends.
func (e *env) consume(t *testing.T, cmd *exec.Cmd, subscriptions []subscription) *inbox {
	t.Helper()
	cmd.Args = append(cmd.Args, strings.Join(e.nameservers, ";"), e.topic)
	for _, s := range subscriptions {
		mode := "concurrently"
		if s.ordered {
			mode = "orderly"
		}
		cmd.Args = append(cmd.Args, s.group, mode, s.tag)
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}
	b := &inbox{got: make(map[string][]consumed), seen: make(map[string]bool)}
	cmd.Stdout, cmd.Stderr = b, b
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("running the consumers (Java 17 or later is needed): %v", err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := errors.Join(cmd.Wait(), b.err); err != nil || t.Failed() {
			t.Errorf("%s: %v\n%s", cmd.Path, err, tail(b.noise.String(), 4000))
		}
	})
	return b
}

// Write takes the program's output: lines of messages, and whatever else it says.
func (b *inbox) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.line = append(b.line, p...)
	for {
		line, rest, complete := bytes.Cut(b.line, []byte("\n"))
		if !complete {
			return len(p), nil
		}
		b.line = rest
		if fields, ok := strings.CutPrefix(string(line), "message\t"); !ok {
			b.noise.Write(append(line, '\n'))
		} else if err := b.add(strings.Split(fields, "\t")); err != nil {
			b.err = fmt.Errorf("line %q: %w", line, err)
		}
	}
}

// add keeps the message of one line.
func (b *inbox) add(fields []string) error {
	const own = 10 // fields, before the properties
	if len(fields) < own || len(fields)%2 != 0 {
		return fmt.Errorf("%d fields", len(fields))
	}
	for i := range fields {
		text, err := base64.StdEncoding.DecodeString(fields[i])
		if err != nil {
			return err
		}
		fields[i] = string(text)
	}
	group, queue, offset := fields[0], fields[3], fields[4]
	if key := strings.Join([]string{group, fields[2], queue, offset}, " "); !b.seen[key] {
		b.seen[key] = true
		b.got[group] = append(b.got[group], newConsumed(fields, own))
	}
	return nil
}

func newConsumed(fields []string, own int) consumed {
	p := make(map[string]string)
	for i := own; i < len(fields); i += 2 {
		p[fields[i]] = fields[i+1]
	}
	return consumed{
		Topic: fields[1], Broker: fields[2], Queue: fields[3], MessageID: fields[5], TransactionID: fields[6], Tag: fields[7],
		Keys: fields[8], Body: fields[9],
		ShardKey: p["SHARDING_KEY"], TxID: p["TX_ID"], Kind: p["TX_KIND"], Region: p["Größe"], Emoji: p["emoji"],
	}
}

// assertQueried asks mqadmin for a message, again where it is too slow itself: a cold JVM gives up after a second or three.
func (e *env) assertQueried(t *testing.T, m consumed, args ...string) {
	t.Helper()
	await.Success(t, time.Minute, func() error {
		out, err := stacktest.Shared(t).MQAdmin(t.Context(), append(args, "-t", e.topic)...)
		if err != nil || !strings.Contains(out, m.MessageID) {
			return fmt.Errorf("mqadmin %s: %w; want message %s in\n%s", strings.Join(args, " "), err, m.MessageID, out)
		}
		return nil
	})
}
