package localtx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/txn"
)

const queueColumns = `topic, queues, version, accepted_at, previous, in_use_from - clock_timestamp(), coalesce(selector, ''), coalesce(previous_selector, '')`

// AcceptedQueues returns the accepted lists of those of the topics that have one.
func (s *Store) AcceptedQueues(ctx context.Context, topics []string) (map[string]txn.AcceptedQueues, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, `SELECT `+queueColumns+` FROM txsvc.topic_queues WHERE topic = ANY ($1)`, topics)
	if err != nil {
		return nil, fmt.Errorf("reading accepted queues: %w", err)
	}
	defer rows.Close()
	lists := make(map[string]txn.AcceptedQueues)
	for rows.Next() {
		topic, list, err := scanQueues(rows)
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
// several at once one does; all get what is recorded.
func (s *Store) AcceptFirst(ctx context.Context, topic string, queues []txn.Queue, selector string) (txn.AcceptedQueues, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := s.exec(ctx, `INSERT INTO txsvc.topic_queues AS t (topic, queues, selector) VALUES ($1, $2, nullif($3, ''))
		ON CONFLICT (topic) DO UPDATE SET selector = EXCLUDED.selector WHERE t.selector IS NULL AND EXCLUDED.selector IS NOT NULL`,
		topic, formatQueues(queues), selector)
	if err != nil {
		return txn.AcceptedQueues{}, fmt.Errorf("recording the queues of topic %s: %w", topic, err)
	}
	lists, err := s.AcceptedQueues(ctx, []string{topic})
	return lists[topic], err
}

// ErrOtherVersion says that another list was accepted meanwhile.
var ErrOtherVersion = errors.New("another list of queues was accepted meanwhile")

// Accept makes the list the topic's accepted one, and the selector that of its ordered messages, unless it is empty. version is that of the list that it replaces, 0 for none; when it is
// not the recorded one, ErrOtherVersion. What was accepted before stays in use for the pause.
func (s *Store) Accept(ctx context.Context, topic string, queues []txn.Queue, selector string, version int64, pause time.Duration) (txn.AcceptedQueues, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, list, err := scanQueues(s.pool.QueryRow(ctx, `INSERT INTO txsvc.topic_queues AS t (topic, queues, selector) VALUES ($1, $2, nullif($5, ''))
		ON CONFLICT (topic) DO UPDATE SET queues = $2, version = t.version + 1, accepted_at = clock_timestamp(),
			previous = CASE WHEN t.in_use_from > clock_timestamp() THEN t.previous ELSE t.queues END,
			previous_selector = CASE WHEN t.in_use_from > clock_timestamp() THEN t.previous_selector ELSE t.selector END,
			selector = coalesce(EXCLUDED.selector, t.selector),
			in_use_from = clock_timestamp() + $4::interval
		WHERE t.version = $3
		RETURNING `+queueColumns, topic, formatQueues(queues), version, pause, selector))
	if errors.Is(err, pgx.ErrNoRows) || err == nil && list.Version != version+1 {
		return list, ErrOtherVersion
	}
	if err != nil {
		return list, fmt.Errorf("accepting the queues of topic %s: %w", topic, err)
	}
	return list, nil
}

func scanQueues(row pgx.Row) (topic string, list txn.AcceptedQueues, err error) {
	var queues, previous []string
	if err := row.Scan(&topic, &queues, &list.Version, &list.AcceptedAt, &previous, &list.Pause, &list.Selector, &list.PreviousSelector); err != nil {
		return "", list, err
	}
	list.AcceptedAt, list.Pause = list.AcceptedAt.UTC(), max(list.Pause, 0)
	if list.Queues, err = parseQueues(queues); err == nil {
		list.Previous, err = parseQueues(previous)
	}
	return topic, list, err
}

func formatQueues(queues []txn.Queue) []string {
	texts := make([]string, len(queues))
	for i, q := range queues {
		texts[i] = q.String()
	}
	return texts
}

func parseQueues(texts []string) ([]txn.Queue, error) {
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
