package leases

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/txn"
)

// Claims takes leases on rows that are due, and finds out where there are some. It is safe for concurrent use.
type Claims struct {
	db *postgres.DB
}

// NewClaims returns the claims of a database. The leases last as the database's timing says.
func NewClaims(db *postgres.DB) *Claims { return &Claims{db} }

// ClaimDue leases up to limit committed rows of the brokers that have a half message, are in no line, and on which nobody
// works, longest waiting first.
func (s *Claims) ClaimDue(ctx context.Context, brokers []string, limit int) ([]txn.Claim, error) {
	return s.claim(ctx, claimDue, pgx.NamedArgs{"brokers": brokers, "limit": limit})
}

// ClaimOne leases the row of the half message, unless somebody works on it or on one before it.
func (s *Claims) ClaimOne(ctx context.Context, id, uniqKey string) (txn.Claim, bool, error) {
	claims, err := s.claim(ctx, claimOne, pgx.NamedArgs{"id": id, "uniq_key": uniqKey})
	if err != nil || len(claims) == 0 {
		return txn.Claim{}, false, err
	}
	return claims[0], true, nil
}

// ClaimOutbox leases up to limit rows of one broker and topic that have no half message and are in no line, longest waiting
// first.
func (s *Claims) ClaimOutbox(ctx context.Context, broker, topic string, limit int) ([]txn.Claim, error) {
	return s.claim(ctx, claimOutbox, pgx.NamedArgs{"broker": broker, "topic": topic, "limit": limit, "bytes": claimBytes})
}

// ClaimLines leases the heads of lines of the topic, each with up to limit-1 rows behind it, where they are due and belong to
// the brokers. They are returned line by line, in order.
func (s *Claims) ClaimLines(ctx context.Context, topic string, shardKeys, brokers []string, limit int) ([]txn.Claim, error) {
	return s.claim(ctx, claimLines, pgx.NamedArgs{
		"topic": topic, "shard_keys": shardKeys, "brokers": brokers, "limit": limit, "bytes": claimBytes,
	})
}

// planned makes PostgreSQL plan a query anew each time: a plan that was made while the table was small reads all of it, and
// would be used until the table's statistics are renewed.
const planned = pgx.QueryExecModeCacheDescribe

func (s *Claims) claim(ctx context.Context, query string, args pgx.NamedArgs) ([]txn.Claim, error) {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	args["lease"] = s.db.Timing().Lease()
	writeBefore := time.Now().Add(s.db.Timing().WriteWithin)
	var claims []txn.Claim
	err := s.db.Write(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, query, planned, args)
		if err != nil {
			return err
		}
		claims, err = pgx.CollectRows(rows, scanClaim)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claiming pending deliveries: %w", err)
	}
	for i := range claims {
		claims[i].Lease.WriteBefore = writeBefore
	}
	return claims, nil
}

func scanClaim(row pgx.CollectableRow) (txn.Claim, error) {
	c := txn.Claim{}
	var freeFor time.Duration
	m := &c.Message
	var properties []byte
	err := row.Scan(&m.TxID, &m.Kind, &m.ShardKey, &m.Topic, &m.Tag, &m.Keys, &properties, &m.Traceparent,
		&m.Queue.Broker, &m.Queue.ID, &m.UniqKey, &c.Half.CommitLogOffset, &c.Half.QueueOffset, &m.Body, &c.CreatedAt,
		&c.Lease.Epoch, &c.Attempts, &freeFor, &c.Outbox, &c.Ordered, &c.Line)
	if err != nil {
		return c, err
	}
	c.First = c.Half.CommitLogOffset
	if properties != nil {
		if err := json.Unmarshal(properties, &m.Properties); err != nil {
			return c, fmt.Errorf("decoding the properties of transaction %s: %w", m.TxID, err)
		}
	}
	c.Half.UniqKey, c.Half.Broker = m.UniqKey, m.Queue.Broker
	// The broker refuses an end later than the message's own immunity, unless it answers a check-back (604).
	c.Half.FromCheck = true
	c.Lease.ID = m.TxID
	c.FreeSince = time.Now().Add(-freeFor)
	return c, nil
}

// DueLines looks at up to limit lines of the topic, in the order of their shard keys and beginning after one. It returns
// those whose head can be claimed, and the last that it has looked at: "" when that was the last of all.
func (s *Claims) DueLines(ctx context.Context, topic, after string, brokers []string, limit int) (due []string, last string, err error) {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	rows, err := s.db.Pool().Query(ctx, dueLines, planned,
		pgx.NamedArgs{"topic": topic, "after": after, "limit": limit, "brokers": brokers})
	if err != nil {
		return nil, "", fmt.Errorf("looking for lines: %w", err)
	}
	seen, isDue := 0, false
	_, err = pgx.ForEachRow(rows, []any{&last, &isDue}, func() error {
		if seen++; isDue {
			due = append(due, last)
		}
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("looking for lines: %w", err)
	}
	if seen < limit {
		last = ""
	}
	return due, last, nil
}

// Groups returns where something is pending that has no half message or is in a line: a broker and a topic for rows in no
// line, a topic alone for lines.
func (s *Claims) Groups(ctx context.Context) ([]txn.Group, error) {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	rows, err := s.db.Pool().Query(ctx, groups, planned)
	if err != nil {
		return nil, fmt.Errorf("looking for pending groups: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[txn.Group])
	if err != nil {
		return nil, fmt.Errorf("looking for pending groups: %w", err)
	}
	return found, nil
}
