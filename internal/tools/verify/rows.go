package verify

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/pgurl"
)

// Row is a transaction's row at the end, from the database or, without it, from GET.
type Row struct {
	ID         string
	Kind       string
	State      string
	Delivery   string
	Abandoned  bool
	ShardKey   string
	Topic      string
	Tag        string
	Keys       []string
	Properties map[string]string
	Broker     string
	QueueID    int
	Selector   string
	Lane       string
	Reason     string
	MessageID  string
	Result     []byte // JSON, or nil
	Rejected   bool
	RejectHash uint64
	Rejection  *saying // what was hashed
	CreatedAt  time.Time
	DecidedAt  *time.Time
	Line       *int64
	Partial    bool // keys and properties are not known, because GET does not return them
}

// rowSource reads rows.
type rowSource interface {
	// scan calls handle for each row of the run, in any order.
	scan(ctx context.Context, handle func(*Row)) error
	// find calls handle for the rows with these ids.
	find(ctx context.Context, ids []string, handle func(*Row)) error
	// pending returns the number of rows of the run that wait to be delivered or decided.
	pending(ctx context.Context) (int, error)
}

// database reads the service's table. It has its own statements, so that it repeats no mistake of the service.
type database struct {
	pool        *pgxpool.Pool
	first, last string // ids of the run are from first on, before last
	columns     string
	table       string // with what is known of the messages
	lines       bool
	tracked     bool          // processes may keep track of messages
	patience    time.Duration // after which one query is given up
}

const (
	rowColumns = `id, kind, state, delivery, abandoned, shard_key, topic, tag, keys, properties, broker, queue_id, selector, reason,
	uniq_key, result::text, rejection::text, created_at, decided_at`
	rowBatch = 5000
)

// openDatabase connects, and checks that the table exists.
func openDatabase(ctx context.Context, url, prefix string, patience time.Duration) (*database, error) {
	config, err := pgurl.Parse(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the database: %w", err)
	}
	// The prefix ends in "-"; "." comes right after it.
	d := &database{pool: pool, first: prefix, last: prefix[:len(prefix)-1] + ".", columns: rowColumns, patience: patience}
	if err := retry(ctx, startLimit, d.look); err != nil {
		pool.Close()
		return nil, err
	}
	return d, nil
}

func (d *database) look(ctx context.Context) error {
	var table bool
	err := d.pool.QueryRow(ctx, `SELECT to_regclass('txsvc.transactions') IS NOT NULL, EXISTS (SELECT FROM pg_attribute
		WHERE attrelid = to_regclass('txsvc.transactions') AND attname = 'line' AND NOT attisdropped), to_regclass('txsvc.current') IS NOT NULL`).
		Scan(&table, &d.lines, &d.tracked)
	d.table = "txsvc.transactions"
	if d.tracked {
		d.table = "txsvc.current"
	}
	switch {
	case err != nil:
		return fmt.Errorf("asking the database: %w", err)
	case !table:
		return errors.New("the database has no table txsvc.transactions: is it the one that the service uses?")
	case d.lines:
		d.columns += ", line"
	default:
		d.columns += ", null::bigint"
	}
	return nil
}

func (d *database) close() { d.pool.Close() }

func (d *database) scan(ctx context.Context, handle func(*Row)) error {
	for after := d.first; ; {
		n, last, err := d.query(ctx, handle, `SELECT `+d.columns+` FROM `+d.table+`
			WHERE id > $1 COLLATE "C" AND id < $2 COLLATE "C" ORDER BY id COLLATE "C" LIMIT $3`, after, d.last, rowBatch)
		if err != nil || n < rowBatch {
			return err
		}
		after = last
	}
}

func (d *database) find(ctx context.Context, ids []string, handle func(*Row)) error {
	_, _, err := d.query(ctx, handle, `SELECT `+d.columns+` FROM `+d.table+` WHERE id = ANY ($1)`, ids)
	return err
}

// query reads all rows before it passes on the first. So a query that breaks and is repeated passes on no row twice.
func (d *database) query(ctx context.Context, handle func(*Row), sql string, args ...any) (n int, last string, err error) {
	var list []*Row
	err = retry(ctx, d.patience, func(ctx context.Context) error {
		list = list[:0]
		rows, err := d.pool.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			r, err := scanRow(rows)
			if err != nil {
				return err
			}
			list = append(list, r)
		}
		return rows.Err()
	})
	if err != nil {
		return 0, "", fmt.Errorf("reading the transactions' rows: %w", err)
	}
	for _, r := range list {
		handle(r)
		last = r.ID
	}
	return len(list), last, nil
}

func scanRow(rows pgx.Rows) (*Row, error) {
	r := new(Row)
	var properties []byte
	var result, refused *string
	err := rows.Scan(&r.ID, &r.Kind, &r.State, &r.Delivery, &r.Abandoned, &r.ShardKey, &r.Topic, &r.Tag, &r.Keys, &properties, &r.Broker,
		&r.QueueID, &r.Selector, &r.Reason, &r.MessageID, &result, &refused, &r.CreatedAt, &r.DecidedAt, &r.Line)
	if err != nil {
		return nil, err
	}
	r.Selector, r.Lane, _ = strings.Cut(r.Selector, ":") // the column has the lane behind its selector
	if result != nil {
		r.Result = []byte(*result)
	}
	if properties != nil {
		if err := json.Unmarshal(properties, &r.Properties); err != nil {
			return nil, fmt.Errorf("properties of %s: %w", r.ID, err)
		}
	}
	if refused != nil {
		var stored struct {
			Message string `json:"message"`
			rejection
		}
		if err := json.Unmarshal([]byte(*refused), &stored); err != nil {
			return nil, fmt.Errorf("rejection of %s: %w", r.ID, err)
		}
		r.Rejected, r.RejectHash = true, rejectionHash(clip(stored.Message), &stored.rejection)
		r.Rejection = rejectionSaid(clip(stored.Message), &stored.rejection)
	}
	return r, nil
}

// clip cuts a message like the service's answers do.
func clip(message string) string {
	const most = 1024
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most], "") + "…"
}

func (d *database) pending(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// The first condition is that of the partial index; few of its rows belong to the run.
	sql := `SELECT count(*) FROM txsvc.transactions WHERE delivery = 'pending' AND id > $1 COLLATE "C" AND id < $2 COLLATE "C"`
	if d.tracked {
		sql = `SELECT (` + sql + `) + (SELECT count(*) FROM txsvc.producers p JOIN txsvc.transactions t
			ON t.created_at >= p.visible_before AND t.created_at < p.ceiling AND left(t.uniq_key, 20) = p.prefix
			WHERE t.delivery = 'tracked' AND t.id > $1 COLLATE "C" AND t.id < $2 COLLATE "C")`
	}
	err = d.pool.QueryRow(ctx, sql, d.first, d.last).Scan(&n)
	return n, err
}

// tableName matches the allowed names of business tables.
var tableName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*(\.[a-zA-Z_][a-zA-Z0-9_]*)?$`)

// hasTable reports whether the table exists, with a column id of type text.
func (d *database) hasTable(ctx context.Context, table string) (there bool, err error) {
	if !tableName.MatchString(table) {
		return false, fmt.Errorf("table %q: a name, or schema and name, are needed", table)
	}
	err = retry(ctx, startLimit, func(ctx context.Context) error {
		return d.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = 'id'
			AND atttypid IN ('text'::regtype, 'varchar'::regtype))`, table).Scan(&there)
	})
	return there, err
}

// changes calls handle for the ids of the run in a business table; with ids, only for those of them.
func (d *database) changes(ctx context.Context, table string, ids []string, handle func(id string)) error {
	from := pgx.Identifier(strings.Split(table, ".")).Sanitize()
	sql, args := `SELECT id FROM `+from+` WHERE id COLLATE "C" > $1 AND id COLLATE "C" < $2`, []any{d.first, d.last}
	if ids != nil {
		sql, args = `SELECT id FROM `+from+` WHERE id = ANY ($1)`, []any{ids}
	}
	var found []string
	err := retry(ctx, d.patience, func(ctx context.Context) error {
		rows, err := d.pool.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		return fmt.Errorf("reading the table %s: %w", table, err)
	}
	for _, id := range found {
		handle(id)
	}
	return nil
}

func (r *Row) queue() string { return queueName(r.Broker, r.QueueID) }

func queueName(broker string, id int) string { return broker + ":" + strconv.Itoa(id) }

// said is what answers say, too.
func (r *Row) said() *saying {
	s := &saying{created: r.CreatedAt.UnixMicro(), texts: [sayTexts]string{
		sayKind: r.Kind, sayShardKey: r.ShardKey, sayTopic: r.Topic, sayTag: r.Tag, saySelector: r.Selector, sayLane: r.Lane, sayReason: r.Reason,
	}}
	s.setResult(r.Result)
	if r.DecidedAt != nil {
		s.decided = r.DecidedAt.UnixMicro()
	}
	return s
}

// content is the hash of what answers say, too.
func (r *Row) content() uint64 { return r.said().hash() }
