package config_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/txsvc/txsvc/internal/config"
	"github.com/txsvc/txsvc/internal/localtx/sqltext"
	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

var schemas = fstest.MapFS{
	"schemas/order.json":  {Data: []byte(`{"type":"object"}`)},
	"schemas/broken.json": {Data: []byte(`{"type":`)},
}

func parse(text string) (*config.File, error) {
	return config.Parse("kinds.yaml", []byte(text), schemas, selector.Registry{})
}

const everything = `
# Comments and order do not matter.
kinds:
  order.create:
    path: /v1/orders
    topic: orders
    tag: created
    schema: ./schemas/order.json
    local:
      handler: orders
    selector: {type: java_hash}
    ordered: false
    delivery: half
    fallback: reject
    immunity: 10s
    timeout: 1500ms
    result_limit: 1MiB
  "note":
    topic: notes
    fallback: outbox
    local: {sql: "insert into notes (id) values (@id); select 1"}
  notes_2.add-all:
    topic: notes
    selector: {type: hash}
    ordered: true
    delivery: outbox
    body: result
    local:
      sql:
        - insert into notes (id) values (@id)
        - |
          insert into words (word)
          select jsonb_array_elements_text(@payload->'words');
          select count(*) from words
topics:
  notes:
    selector:
      type: round_robin
  other%topic|X: {}
  orders: {}
`

func TestParse(t *testing.T) {
	got, err := parse(everything)
	if err != nil {
		t.Fatal(err)
	}
	insert := sqltext.Statement{Text: "insert into notes (id) values (($1::text))", Args: []string{"id"}}
	want := &config.File{
		Kinds: map[string]config.Kind{
			"order.create": {
				Kind: txn.Kind{
					Name: "order.create", Path: "/v1/orders", Destination: txn.Destination{Topic: "orders"}, Tag: "created", Immunity: 10 * time.Second, Timeout: 1500 * time.Millisecond,
					Options: txn.Options{Via: "half", Fallback: "reject", Body: "payload", ResultLimit: 1 << 20},
				},
				Selector: selector.Spec{Type: "java_hash"}, Local: config.Local{Handler: "orders"},
			},
			"note": {
				Kind: txn.Kind{
					Name: "note", Destination: txn.Destination{Topic: "notes"}, Timeout: txn.DefaultTiming().LocalDefault,
					Options: txn.Options{Via: "half", Fallback: "outbox", Body: "payload", ResultLimit: 64 << 10},
				},
				Selector: selector.Spec{Type: "round_robin"}, Local: config.Local{SQL: []sqltext.Statement{insert, {Text: "select 1"}}},
			},
			"notes_2.add-all": {
				Kind: txn.Kind{
					Name: "notes_2.add-all", Destination: txn.Destination{Topic: "notes"}, Timeout: txn.DefaultTiming().LocalDefault,
					Options: txn.Options{Ordered: true, Via: "outbox", Fallback: "reject", Body: "result", ResultLimit: 64 << 10},
				},
				Selector: selector.Spec{Type: "hash"},
				Local: config.Local{SQL: []sqltext.Statement{
					insert,
					{Text: "insert into words (word)\nselect jsonb_array_elements_text(($1::jsonb)->'words')", Args: []string{"payload"}},
					{Text: "select count(*) from words"},
				}},
			},
		},
		Topics: map[string]config.Topic{
			"orders":        {Name: "orders", Selector: selector.Spec{Type: "hash"}},
			"notes":         {Name: "notes", Selector: selector.Spec{Type: "round_robin"}},
			"other%topic|X": {Name: "other%topic|X", Selector: selector.Spec{Type: "hash"}},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(txn.Kind{}, "Schema"),
		cmpopts.IgnoreFields(config.File{}, "Name"), cmpopts.IgnoreFields(config.Local{}, "Place", "PlaceInSQL")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if s := got.Kinds["order.create"].Schema; s == nil || len(s.Validate(json.RawMessage("1"))) != 1 {
		t.Errorf("the schema of order.create does not refuse a number")
	}
	if s := got.Kinds["note"].Schema; s != nil {
		t.Errorf("got schema %v for note, want none", s)
	}
}

// kind returns a file whose only kind has the given field, beside what every kind needs.
func kind(field string) string {
	text := "kinds:\n  a.b:\n    " + strings.ReplaceAll(field, "\n", "\n    ") + "\n"
	if !strings.HasPrefix(field, "topic:") {
		text += "    topic: t\n"
	}
	if !strings.HasPrefix(field, "local:") {
		text += "    local: {handler: h}\n"
	}
	return text
}

// long is a name of n letters.
func long(n int) string { return strings.Repeat("a", n) }

func TestParseRefuses(t *testing.T) {
	const (
		notText   = "must be text; in quotes if it looks like something else"
		noMapping = "must be a mapping"
		oneLocal  = "must have exactly one of handler, sql, external"
		topicForm = "the name of a topic has at most 127 letters, digits and the characters % | _ -"
		pathForm  = "a path begins with /v1/ and has parts of letters, digits and . _ ~ - that begin with a letter or a digit"
		kindForm  = "the name of a kind has at most 100 small letters and digits, in parts joined by . _ or -"
		tagForm   = "a tag must not contain ||, begin or end with a space, or be *: consumers could not subscribe to it"
		noTime    = "must be a time with its unit, like 10s"
		unused    = "anchors, aliases and tags of YAML are not used here"
		kindKnown = "unknown field; known are body, delivery, fallback, immunity, keep_body, local, ordered, path, result_limit, schema, selector, tag, timeout, topic"
	)
	for _, tt := range []struct{ name, text, want string }{
		// The document.
		{"empty", "", "1:1: the file is empty"},
		{"comments only", "# nothing\n", "1:1: the file is empty"},
		{"not a mapping", "- a\n", "1:1: must be a mapping"},
		{"not YAML", "kinds:\n  a: [", "2:6: sequence end token ']' not found"},
		{"two documents", kind("tag: x") + "---\nkinds: {}\n", "7:6: there must be one document only"},
		{"no kinds", "topics: {}\n", "1:7: kinds is required"},
		{"null kinds", "kinds:\n", "1:8: kinds: must be a mapping"},
		{"empty kinds", "kinds: {}\n", "1:8: kinds: at least one kind is needed"},
		{"unknown at the top", "kind: {}\n" + kind("tag: x"), "1:1: kind: unknown field; known are kinds, topics"},
		{"the same kind twice", kind("tag: x") + "  a.b:\n    topic: t\n", `6:3: mapping key "a.b" already defined at [2:3]`},

		// Names.
		{"kind in capitals", "kinds:\n  Order: {topic: t, local: {handler: h}}\n", "2:3: kinds.Order: " + kindForm},
		{"kind with two dots", "kinds:\n  a..b: {topic: t, local: {handler: h}}\n", "2:3: kinds.a..b: " + kindForm},
		{"kind with a dot at the end", "kinds:\n  a.: {topic: t, local: {handler: h}}\n", "2:3: kinds.a.: " + kindForm},
		{"long kind", "kinds:\n  " + long(101) + ": {topic: t, local: {handler: h}}\n", "2:3: kinds." + long(101) + ": " + kindForm},
		{"topic with a dot", kind("topic: a.b"), "3:12: kinds.a.b.topic: " + topicForm},
		{"long topic", kind("topic: " + long(128)), "3:12: kinds.a.b.topic: " + topicForm},
		{"topic beyond ASCII", kind("topic: größe"), "3:12: kinds.a.b.topic: " + topicForm},
		{"system topic", kind("topic: TBW102"), "3:12: kinds.a.b.topic: this topic is RocketMQ's own"},
		{"system topic for delays", kind("topic: SCHEDULE_TOPIC_XXXX"), "3:12: kinds.a.b.topic: this topic is RocketMQ's own"},
		{"system topic by prefix", kind("topic: RMQ_SYS_TRANS_HALF_TOPIC"), "3:12: kinds.a.b.topic: this topic is RocketMQ's own"},
		{"system topic by small prefix", kind("topic: rmq_sys_wheel_timer"), "3:12: kinds.a.b.topic: this topic is RocketMQ's own"},
		{"undeclared topic", kind("topic: refund") + "topics: {orders: {}, refunds: {}}\n", "3:12: kinds.a.b.topic: the topic refund is not declared in topics; refunds is"},
		{"undeclared topic like none", kind("topic: notes") + "topics: {orders: {}, refunds: {}}\n", "3:12: kinds.a.b.topic: the topic notes is not declared in topics"},
		{"undeclared topic beside none", "topics: {}\n" + kind("topic: notes"), "4:12: kinds.a.b.topic: the topic notes is not declared in topics"},
		{"retry topic", kind("topic: '%RETRY%group'"), "3:12: kinds.a.b.topic: topics that begin with %RETRY% are RocketMQ's own"},
		{"dead letters", kind("topic: '%DLQ%group'"), "3:12: kinds.a.b.topic: topics that begin with %DLQ% are RocketMQ's own"},
		{"light queues", kind("topic: '%LMQ%x'"), "3:12: kinds.a.b.topic: topics that begin with %LMQ% are RocketMQ's own"},
		{"name under topics", kind("tag: x") + "topics:\n  a.b: {}\n  t: {}\n", "7:3: topics.a.b: " + topicForm},

		// Paths.
		{"path elsewhere", kind("path: /orders"), "3:11: kinds.a.b.path: " + pathForm},
		{"path without parts", kind("path: /v1/"), "3:11: kinds.a.b.path: " + pathForm},
		{"path with a slash at the end", kind("path: /v1/a/"), "3:11: kinds.a.b.path: " + pathForm},
		{"path with an empty part", kind("path: /v1//a"), "3:11: kinds.a.b.path: " + pathForm},
		{"path with a pattern", kind("path: '/v1/{a}'"), "3:11: kinds.a.b.path: " + pathForm},
		{"path upwards", kind("path: /v1/../healthz"), "3:11: kinds.a.b.path: " + pathForm},
		{"path with an escape", kind("path: /v1/a%2fb"), "3:11: kinds.a.b.path: " + pathForm},
		{"long path", kind("path: /v1/" + long(252)), "3:11: kinds.a.b.path: " + pathForm},
		{"the API's path", kind("path: /v1/transactions"), "3:11: kinds.a.b.path: /v1/transactions belongs to the API itself"},
		{"beneath the API's path", kind("path: /v1/messages/x"), "3:11: kinds.a.b.path: /v1/messages belongs to the API itself"},
		{"routes", kind("path: /v1/routes/preview"), "3:11: kinds.a.b.path: /v1/routes belongs to the API itself"},
		{"topics", kind("path: /v1/topics"), "3:11: kinds.a.b.path: /v1/topics belongs to the API itself"},
		{"kinds", kind("path: /v1/kinds"), "3:11: kinds.a.b.path: /v1/kinds belongs to the API itself"},
		{"path twice", kind("path: /v1/a") + "  c:\n    path: /v1/a\n    topic: t\n    local: {handler: h}\n", "7:11: kinds.c.path: is the path of the kind a.b already"},

		// Fields of a kind.
		{"kind is text", "kinds:\n  a.b: x\n", "2:8: kinds.a.b: " + noMapping},
		{"no topic", "kinds:\n  a.b:\n    local: {handler: h}\n", "2:3: kinds.a.b: topic is required"},
		{"no local", "kinds:\n  a.b:\n    topic: t\n", "2:3: kinds.a.b: local is required"},
		{"unknown field", kind("tpoic: x"), "3:5: kinds.a.b.tpoic: " + kindKnown},
		{"merge", kind("<<: {tag: x}"), "3:5: kinds.a.b.<<: " + kindKnown},
		{"topic is a number", kind("topic: 5"), "3:12: kinds.a.b.topic: " + notText},
		{"topic is a list", kind("topic: [a]"), "3:12: kinds.a.b.topic: " + notText},
		{"topic is null", kind("topic: null"), "3:12: kinds.a.b.topic: " + notText},
		{"topic is empty", kind("topic: ''"), "3:12: kinds.a.b.topic: must not be empty"},
		{"anchor", kind("tag: &x a"), "3:10: kinds.a.b.tag: " + unused},
		{"alias", kind("tag: *x"), "3:10: kinds.a.b.tag: " + unused},
		{"YAML tag", kind("tag: !!str a"), "3:10: kinds.a.b.tag: " + unused},
		{"anchor before a mapping", kind("selector: &x {type: hash}"), "3:15: kinds.a.b.selector: " + unused},
		{"tag with bars", kind("tag: a||b"), "3:10: kinds.a.b.tag: " + tagForm},
		{"tag with a space", kind("tag: ' a'"), "3:10: kinds.a.b.tag: " + tagForm},
		{"tag is a star", kind("tag: '*'"), "3:10: kinds.a.b.tag: " + tagForm},
		{"long tag", kind("tag: " + long(128)), "3:10: kinds.a.b.tag: a tag has at most 127 bytes"},
		{"tag with a separator", kind(`tag: "a\x01b"`), "3:10: kinds.a.b.tag: a tag must not contain the characters U+0000, U+0001 or U+0002"},
		{"no schema file", kind("schema: schemas/none.json"), "3:13: kinds.a.b.schema: reading the schema: open schemas/none.json: file does not exist"},
		{"schema outside", kind("schema: ../order.json"), `3:13: kinds.a.b.schema: "../order.json" is not a path below the directory`},
		{"broken schema", kind("schema: schemas/broken.json"), "3:13: kinds.a.b.schema: schemas/broken.json: is not valid JSON"},
		{"schema is a number", kind("schema: 1"), "3:13: kinds.a.b.schema: " + notText},
		{"ordered is text", kind("ordered: 'no'"), "3:14: kinds.a.b.ordered: must be true or false"},
		{"delivery", kind("delivery: full"), "3:15: kinds.a.b.delivery: must be half or outbox"},
		{"fallback", kind("fallback: half"), "3:15: kinds.a.b.fallback: must be reject or outbox"},
		{"body", kind("body: results"), "3:11: kinds.a.b.body: must be payload or result"},
		{"body of a half message", kind("body: result"), "3:11: kinds.a.b.body: result needs delivery: outbox; a half message is stored before there is a result"},
		{"body of a half message, with fallback", kind("fallback: outbox\nbody: result"), "4:11: kinds.a.b.body: result needs delivery: outbox; a half message is stored before there is a result"},
		{"order without affinity", kind("ordered: true\nselector: {type: round_robin}"), "3:14: kinds.a.b.ordered: needs a selector that keeps a shard key in one queue; round_robin does not"},
		{"order in a topic without affinity", kind("ordered: true") + "topics:\n  t: {selector: {type: round_robin}}\n", "3:14: kinds.a.b.ordered: needs a selector that keeps a shard key in one queue; round_robin does not"},
		{"order by a queue", kind("ordered: true\nselector: {type: queue}"), "3:14: kinds.a.b.ordered: needs a selector that keeps a shard key in one queue; queue goes by selector_arg"},
		{"order by a header", kind("ordered: true\nselector: {type: lanes, by: 'header:X-Lane', lanes: {default: {queues: [0]}}, within: hash}"), "3:14: kinds.a.b.ordered: needs a selector that keeps a shard key in one queue; lanes by header:X-Lane go by more than the key; lanes by shard_key do not"},
		{"order within lanes", kind("ordered: true\nselector: {type: lanes, by: shard_key, lanes: {default: {queues: [0]}}, within: round_robin}"), "3:14: kinds.a.b.ordered: needs a selector that keeps a shard key in one queue; within its lanes, round_robin does not"},
		{"two orders of a topic", kind("ordered: true\nselector: {type: consistent}") + "  c:\n    topic: t\n    ordered: true\n    local: {handler: h}\n", "9:14: kinds.c.ordered: needs the selector of the kind a.b, which is ordered, too, and has the same topic: one key would go to two queues"},
		{"keep_body is a number", kind("keep_body: 1"), "3:16: kinds.a.b.keep_body: must be true or false"},
		{"result without unit", kind("result_limit: 65536"), "3:19: kinds.a.b.result_limit: must be a size with its unit, like 64KiB or 1MiB"},
		{"result in other units", kind("result_limit: 1GB"), "3:19: kinds.a.b.result_limit: must be a size with its unit, like 64KiB or 1MiB"},
		{"result beyond a message", kind("result_limit: 5MiB"), "3:19: kinds.a.b.result_limit: must be from 1KiB to 4MiB"},
		{"no result at all", kind("result_limit: 0KiB"), "3:19: kinds.a.b.result_limit: must be from 1KiB to 4MiB"},
		{"timeout without unit", kind("timeout: 5"), "3:14: kinds.a.b.timeout: " + noTime},
		{"timeout is strange", kind("timeout: soon"), "3:14: kinds.a.b.timeout: " + noTime},
		{"timeout is zero", kind("timeout: 0s"), "3:14: kinds.a.b.timeout: must be from 1ms to 1m0s"},
		{"timeout is negative", kind("timeout: -1s"), "3:14: kinds.a.b.timeout: must be from 1ms to 1m0s"},
		{"long timeout", kind("timeout: 61s"), "3:14: kinds.a.b.timeout: must be from 1ms to 1m0s"},
		{"short immunity", kind("immunity: 900ms"), "3:15: kinds.a.b.immunity: must be from 1s to 1h0m0s"},
		{"long immunity", kind("immunity: 3601s"), "3:15: kinds.a.b.immunity: must be from 1s to 1h0m0s"},
		{"immunity in fractions", kind("immunity: 1500ms"), "3:15: kinds.a.b.immunity: must be a multiple of 1s"},

		// What later versions bring.
		{"external", kind("local:\n  external: {check_url: 'https://example.com'}"), "4:17: kinds.a.b.local.external: not supported by this version"},

		// Selectors.
		{"selector is text", kind("selector: hash"), "3:15: kinds.a.b.selector: " + noMapping},
		{"selector without type", kind("selector: {}"), "3:15: kinds.a.b.selector: type is required"},
		{"selector with an empty type", kind("selector: {type: ''}"), "3:22: kinds.a.b.selector.type: must not be empty"},
		{"unknown selector", kind("selector: {type: hsah}"), `3:22: kinds.a.b.selector.type: selector type "hsah" is unknown; there are consistent, hash, java_hash, lanes, queue, round_robin`},
		{"selector with more", kind("selector: {type: hash, by: x}"), "3:28: kinds.a.b.selector.by: unknown field; known are on_change, type"},
		{"selector of a topic", kind("tag: x") + "topics:\n  t: {selector: {type: lame}}\n", `7:24: topics.t.selector.type: selector type "lame" is unknown; there are consistent, hash, java_hash, lanes, queue, round_robin`},
		{"unknown field of a topic", kind("tag: x") + "topics:\n  t: {queues: 8}\n", "7:7: topics.t.queues: unknown field; known are selector"},
		{"topics is a list", kind("tag: x") + "topics: [t]\n", "6:9: topics: " + noMapping},
		{"topic without value", kind("tag: x") + "topics:\n  t:\n", "7:6: topics.t: " + noMapping},

		// Local transactions.
		{"local is text", kind("local: orders"), "3:12: kinds.a.b.local: " + noMapping},
		{"local is empty", kind("local: {}"), "3:12: kinds.a.b.local: " + oneLocal},
		{"two locals", kind("local: {handler: h, sql: select 1}"), "3:12: kinds.a.b.local: " + oneLocal},
		{"unknown local", kind("local: {hander: h}"), "3:13: kinds.a.b.local.hander: unknown field; known are external, handler, sql"},
		{"handler is empty", kind("local: {handler: ''}"), "3:22: kinds.a.b.local.handler: must not be empty"},
		{"SQL is empty", kind("local: {sql: ''}"), "3:18: kinds.a.b.local.sql: must not be empty"},
		{"SQL is a comment", kind("local: {sql: '-- x'}"), "3:19: kinds.a.b.local.sql: there is no statement"},
		{"SQL is a number", kind("local: {sql: 1}"), "3:18: kinds.a.b.local.sql: " + notText},
		{"list of nothing", kind("local: {sql: []}"), "3:18: kinds.a.b.local.sql: must not be empty"},
		{"list with a number", kind("local: {sql: [select 1, 2]}"), "3:29: kinds.a.b.local.sql[1]: " + notText},
		{"list with a mistake", kind("local:\n  sql:\n    - select 1\n    - commit"), "6:11: kinds.a.b.local.sql[1]: COMMIT is not allowed: the service begins and ends the transaction"},
		{"mistake in a block", kind("local:\n  sql: |\n\n    select 1;\n      select @x"), "7:18: kinds.a.b.local.sql: the parameter @x is unknown: there are @id, @shard_key, @payload, @local_arg, @selector_arg; the operator @ needs a space behind it"},
		{"mistake in a folded block", kind("local:\n  sql: >\n    select 1;\n    commit"), "4:12: kinds.a.b.local.sql: line 1, column 11: COMMIT is not allowed: the service begins and ends the transaction"},
		{"mistake in quotes", kind("local:\n  sql: \"select 1;\\n  commit\""), "4:12: kinds.a.b.local.sql: line 2, column 3: COMMIT is not allowed: the service begins and ends the transaction"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(tt.text)
			if err == nil {
				t.Fatalf("no error, want %s\n%s", tt.want, tt.text)
			}
			if _, ok := errors.AsType[*config.Error](err); !ok {
				t.Errorf("got a %T, want an *Error", err)
			}
			if got, _ := strings.CutPrefix(err.Error(), "kinds.yaml:"); got != tt.want {
				t.Errorf("\n got %s\nwant %s\n%s", got, tt.want, tt.text)
			}
		})
	}
}

func TestParseTellsEveryMistakeInOrder(t *testing.T) {
	_, err := parse("topics:\n  t: {selector: {type: lame}}\nkinds:\n  A:\n    ordered: 1\n    local: {sql: begin}\n    typo: 1\n")
	want := `kinds.yaml:2:24: topics.t.selector.type: selector type "lame" is unknown; there are consistent, hash, java_hash, lanes, queue, round_robin
kinds.yaml:4:3: kinds.A: the name of a kind has at most 100 small letters and digits, in parts joined by . _ or -
kinds.yaml:4:3: kinds.A: topic is required
kinds.yaml:5:14: kinds.A.ordered: must be true or false
kinds.yaml:6:18: kinds.A.local.sql: BEGIN is not allowed: the service begins and ends the transaction
kinds.yaml:7:5: kinds.A.typo: unknown field; known are body, delivery, fallback, immunity, keep_body, local, ordered, path, result_limit, schema, selector, tag, timeout, topic`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestParseAcceptsTheLimits(t *testing.T) {
	for _, field := range []string{
		"timeout: 60s", "timeout: 1ms", "immunity: 1s", "immunity: 1h", "topic: " + long(127), "tag: " + long(127),
		"path: /v1/" + long(251), "path: /v1/transactionsx", "path: /v1/a/b.c_d~e-f", "topic: '%x|_-'", `tag: "5"`,
	} {
		if _, err := parse(kind(field)); err != nil {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestLoadReadsSchemasBesideTheFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "kinds.yaml")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(name, kind("schema: order.json"))
	write(filepath.Join(dir, "order.json"), `{"type":"null"}`)
	file, err := config.Load(name, selector.Registry{})
	if err != nil {
		t.Fatal(err)
	}
	if got := file.Kinds["a.b"].Schema.Validate(json.RawMessage("1")); len(got) != 1 {
		t.Errorf("got %v, want one error", got)
	}
	if _, err := config.Load(filepath.Join(dir, "none.yaml"), selector.Registry{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want one that wraps %v", err, os.ErrNotExist)
	}
}

func TestDev(t *testing.T) {
	file, err := config.Dev()
	if err != nil {
		t.Fatal(err)
	}
	order, payment := file.Kinds["order.create"], file.Kinds["payment.capture"]
	if order.Path != "/v1/orders" || order.Topic != "orders" || order.Tag != "created" || order.Local.Handler != "orders" || order.Selector.Type != "hash" {
		t.Errorf("order.create: got %+v", order)
	}
	if payment.Topic != "payments" || len(payment.Local.SQL) != 1 || payment.Schema == nil {
		t.Fatalf("payment.capture: got %+v", payment)
	}
	for text, want := range map[string]int{
		`{"order_id":"o-1","amount_minor":1250,"currency":"EUR"}`:                0,
		`{"order_id":"o-1","amount_minor":9223372036854775807,"currency":"EUR"}`: 0,
		`{"order_id":"o-1","amount_minor":9223372036854775808,"currency":"EUR"}`: 1,
		`{"order_id":"","amount_minor":0,"currency":"eur","more":1}`:             4,
		`{}`: 3,
		`1`:  1,
	} {
		if got := payment.Schema.Validate(json.RawMessage(text)); len(got) != want {
			t.Errorf("%s: got %v, want %d errors", text, got, want)
		}
	}
}

// No text makes the reader panic, and every mistake has a place.
func FuzzParse(f *testing.F) {
	f.Add(everything)
	f.Add(kind("local:\n  sql: |\n    select @x"))
	f.Add("kinds: &a {a: *a}\n---\n- <<: !!x {? [a] : b}")
	f.Add("kinds:\n  ? a\n  : b\n  1: |2\n   x\n\t: >-\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := parse(text)
		assertPlaces(t, err)
	})
}

// assertPlaces: every mistake, if there is one, has a place.
func assertPlaces(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	e, ok := errors.AsType[*config.Error](err)
	if !ok {
		t.Fatalf("got a %T, want an *Error", err)
	}
	for _, p := range e.Problems {
		if p.Line < 1 || p.Column < 1 || p.Message == "" {
			t.Fatalf("problem without a place: %+v", p)
		}
	}
}

// TestErrorAt: what is found wrong later has its place in the file too.
func TestErrorAt(t *testing.T) {
	file, err := config.Parse("my.yaml", []byte("kinds:\n  a:\n    topic: t\n    local: {handler: nobody}\n"), nil, selector.Registry{})
	if err != nil {
		t.Fatal(err)
	}
	const want = "my.yaml:4:22: kinds.a.local.handler: is unknown"
	if got := file.ErrorAt(file.Kinds["a"].Local.Place, "is unknown").Error(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
