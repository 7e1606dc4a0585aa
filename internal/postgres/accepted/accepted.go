// Package accepted stores the lists of queues that operators have accepted, one for each topic.
package accepted

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/txn"
)

// The columns of a list in the order in which scan reads them.
const columns = `topic, queues, version, accepted_at, previous, in_use_from - clock_timestamp(), coalesce(selector, ''), coalesce(previous_selector, '')`

const (
	find = `SELECT ` + columns + ` FROM txsvc.topic_queues WHERE topic = ANY ($1)`

	// acceptFirst completes a list that was recorded by a version that did not record selectors.
	acceptFirst = `INSERT INTO txsvc.topic_queues AS t (topic, queues, selector) VALUES ($1, $2, nullif($3, ''))
		ON CONFLICT (topic) DO UPDATE SET selector = EXCLUDED.selector WHERE t.selector IS NULL AND EXCLUDED.selector IS NOT NULL`

	accept = `INSERT INTO txsvc.topic_queues AS t (topic, queues, selector) VALUES (@topic, @queues, nullif(@selector, ''))
		ON CONFLICT (topic) DO UPDATE SET queues = EXCLUDED.queues, version = t.version + 1, accepted_at = clock_timestamp(),
			previous = CASE WHEN t.in_use_from > clock_timestamp() THEN t.previous ELSE t.queues END,
			previous_selector = CASE WHEN t.in_use_from > clock_timestamp() THEN t.previous_selector ELSE t.selector END,
			selector = coalesce(EXCLUDED.selector, t.selector),
			in_use_from = clock_timestamp() + @pause::interval
		WHERE t.version = @version
		RETURNING ` + columns
)

// ErrOtherVersion says that another list was accepted meanwhile.
var ErrOtherVersion = errors.New("another list of queues was accepted meanwhile")

// Lists is the table of accepted lists. It is safe for concurrent use.
type Lists struct{ db *postgres.DB }

// New returns the accepted lists of the database.
func New(db *postgres.DB) *Lists { return &Lists{db: db} }

// AcceptedQueues returns the accepted lists of those of the topics that have one.
func (s *Lists) AcceptedQueues(ctx context.Context, topics []string) (map[string]txn.AcceptedQueues, error) {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	rows, err := s.db.Pool().Query(ctx, find, topics)
	if err != nil {
		return nil, fmt.Errorf("reading accepted queues: %w", err)
	}
	defer rows.Close()
	lists := make(map[string]txn.AcceptedQueues)
	for rows.Next() {
		topic, list, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("reading accepted queues: %w", err)
		}
		lists[topic] = list
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("reading accepted queues: %w", err)
	}
	return lists, nil
}

// AcceptFirst records the list of a topic that has none, and the selector where none is recorded, unless it is empty. Of
// several callers at once one succeeds; all get the recorded list.
func (s *Lists) AcceptFirst(ctx context.Context, topic string, queues []txn.Queue, selector string) (txn.AcceptedQueues, error) {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	if _, err := s.db.Exec(ctx, acceptFirst, topic, format(queues), selector); err != nil {
		return txn.AcceptedQueues{}, fmt.Errorf("recording the queues of topic %s: %w", topic, err)
	}
	lists, err := s.AcceptedQueues(ctx, []string{topic})
	return lists[topic], err
}

// Accept makes the list the topic's accepted one, and the selector that of its ordered messages, unless it is empty. version
// is that of the list that it replaces, 0 for none; when that is not the recorded version, the error is ErrOtherVersion. The
// list before stays in use for the pause.
func (s *Lists) Accept(ctx context.Context, topic string, queues []txn.Queue, selector string, version int64, pause time.Duration) (txn.AcceptedQueues, error) {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	_, list, err := scan(s.db.Pool().QueryRow(ctx, accept, pgx.NamedArgs{
		"topic": topic, "queues": format(queues), "selector": selector, "version": version, "pause": pause,
	}))
	if errors.Is(err, pgx.ErrNoRows) || err == nil && list.Version != version+1 {
		return list, ErrOtherVersion
	}
	if err != nil {
		return list, fmt.Errorf("accepting the queues of topic %s: %w", topic, err)
	}
	return list, nil
}

func scan(row pgx.Row) (topic string, list txn.AcceptedQueues, err error) {
	var queues, previous []string
	if err := row.Scan(&topic, &queues, &list.Version, &list.AcceptedAt, &previous, &list.Pause, &list.Selector, &list.PreviousSelector); err != nil {
		return "", list, err
	}
	list.AcceptedAt, list.Pause = list.AcceptedAt.UTC(), max(list.Pause, 0)
	if list.Queues, err = parse(queues); err == nil {
		list.Previous, err = parse(previous)
	}
	return topic, list, err
}

func format(queues []txn.Queue) []string {
	texts := make([]string, len(queues))
	for i, q := range queues {
		texts[i] = q.String()
	}
	return texts
}

func parse(texts []string) ([]txn.Queue, error) {
	var queues []txn.Queue
	for _, text := range texts {
		q, err := txn.ParseQueue(text)
		if err != nil {
			return nil, err
		}
		queues = append(queues, q)
	}
	return queues, nil
}
