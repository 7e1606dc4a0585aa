package rows

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/postgres/producers"
	"github.com/txsvc/txsvc/internal/txn"
)

// TableName is the name of the table.
const TableName = `txsvc.transactions`

// Insert is the row of a committed attempt, as a part of a statement, with its arguments. The row is written last in a local
// transaction, once, with the result.
type Insert struct {
	*Text
	Args []any
}

// Text is the text of an Insert: the columns, and the expressions for their values. There is one of each shape.
type Text struct {
	Columns, Values string
	// Times are further columns, and values, that are evaluated after all others: the transaction is decided then.
	Times, TimeValues string
	alone, withResult string // as a statement of its own
}

// shape is what decides about the text of an Insert. There are few, so that statements are prepared once.
type shape struct {
	kind, topic, tag string
	first            int  // the number of the first parameter
	tracked          bool // the process keeps track of the message; else the row has a lease
	outbox, ordered  bool
	extras           bool // there is more than most requests have
}

var known sync.Map // of shape, to *Text

// InsertOf returns the Insert of an attempt. Its parameters are numbered from first on. A row that is not tracked has the
// lease. Columns that are null in most rows, and values that are the same for all rows of a kind, are no arguments, because
// each of them costs every transaction time.
func InsertOf(a *txn.Attempt, first int, tracked bool, lease time.Duration) (Insert, error) {
	s := shape{
		kind: a.Kind.Name, topic: a.Kind.Topic, tag: a.Request.Tag, first: first, tracked: tracked,
		outbox: a.Via == txn.ViaOutbox, ordered: a.Kind.Ordered,
	}
	r := &a.Request
	s.extras = len(r.Keys) > 0 || len(r.Properties) > 0 || r.Traceparent != "" || r.Tag != a.Kind.Tag
	if s.extras {
		s.tag = ""
	}
	args := append(make([]any, 0, 18),
		r.ID, r.ShardKey, a.Route.Queue.Broker, a.Route.Queue.ID, SelectorText(a.Route), a.Route.Reason, a.Half.UniqKey,
		a.Half.CommitLogOffset, a.Half.QueueOffset, bodyOf(a), Stamp(a.CreatedAt), []byte(a.Fingerprint))
	if !tracked {
		args = append(args, lease)
	}
	if s.extras {
		properties, err := propertiesOf(a)
		if err != nil {
			return Insert{}, err
		}
		args = append(args, r.Tag, r.Keys, properties, orNull(r.Traceparent))
	}
	text, ok := known.Load(s)
	if !ok {
		text, _ = known.LoadOrStore(s, s.text())
	}
	return Insert{Text: text.(*Text), Args: args}, nil //nolint:forcetypeassert // the map holds nothing else
}

// text lists the columns and the values in the order of InsertOf's arguments.
func (s shape) text() *Text {
	var columns, values []string
	n := s.first
	add := func(column, value string) {
		columns = append(columns, column)
		values = append(values, value)
	}
	param := func(column, cast string) {
		add(column, "$"+strconv.Itoa(n)+"::"+cast)
		n++
	}
	for _, c := range [][2]string{
		{"id", "text"}, {"shard_key", "text"}, {"broker", "text"}, {"queue_id", "int"}, {"selector", "text"}, {"reason", "text"},
		{"uniq_key", "text"}, {"commit_log_offset", "bigint"}, {"queue_offset", "bigint"}, {"body", "bytea"}, {"created_at", "timestamptz"},
		{"fingerprint", "bytea"},
	} {
		param(c[0], c[1])
	}
	add("kind", literal(s.kind))
	add("topic", literal(s.topic))
	add("state", "'committed'")
	t := &Text{Times: "decided_at", TimeValues: "clock_timestamp()"}
	if s.tracked {
		add("delivery", "'"+producers.Delivery+"'")
	} else {
		add("delivery", "'pending'")
		t.Times, t.TimeValues = "decided_at, lease_until", "clock_timestamp(), clock_timestamp() + $"+strconv.Itoa(n)+"::interval"
		n++
	}
	if s.extras {
		param("tag", "text")
		param("keys", "text[]")
		param("properties", "jsonb")
		param("traceparent", "text")
	} else {
		add("tag", literal(s.tag))
	}
	if s.outbox {
		add("outbox", "true")
	}
	if s.ordered {
		add("ordered", "true")
		add("line", "nextval('txsvc.line')") // its place in its line
	}
	t.Columns, t.Values = strings.Join(columns, ", "), strings.Join(values, ", ")
	t.alone = `INSERT INTO ` + TableName + ` (` + t.Columns + `, ` + t.Times + `) VALUES (` + t.Values + `, ` + t.TimeValues + `) RETURNING decided_at`
	t.withResult = `INSERT INTO ` + TableName + ` (` + t.Columns + `, result, ` + t.Times + `) VALUES (` + t.Values + `, $` + strconv.Itoa(n) + `::json, ` +
		t.TimeValues + `) RETURNING decided_at`
	return t
}

// literal is a constant of SQL.
func literal(s string) string {
	if strings.Contains(s, `\`) {
		return "E'" + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "'", "''") + "'"
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// Statement returns the Insert as a statement of its own, with its arguments. It takes the result as one argument more, and
// returns the time of the decision.
func (i Insert) Statement(result []byte) (sql string, args []any) {
	if result == nil {
		return i.alone, i.Args
	}
	return i.withResult, append(i.Args, string(result))
}

// Replace returns the statement that lets the row of an attempt, with its result, take the place of an abandoned one. It
// changes no row when the id's row is decided, or fences the attempt's own half message; else it returns the time of the
// decision.
func Replace(a *txn.Attempt, t *txn.Transaction, lease time.Duration) (sql string, args []any, err error) {
	args, err = rowValues(a, t, lease)
	return replace, append(args, a.Via == txn.ViaOutbox, a.Kind.Ordered), err
}

// ScanDecided reads the time of the decision.
func ScanDecided(row pgx.Row) (at time.Time, err error) {
	err = row.Scan(&at)
	return at.UTC(), err
}
