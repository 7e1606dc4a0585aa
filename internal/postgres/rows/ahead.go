package rows

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/txn"
)

// Before says whether rows are pending before a row of a line.
type Before struct {
	Free bool // nothing, as far as this process knows by its marks
	Soon bool // requests still work on all of it
}

// ReadAhead reads the rows of the query Ahead.
func (s *Table) ReadAhead(rows pgx.Rows) (Before, error) {
	defer rows.Close()
	before := Before{Free: true, Soon: true}
	n := 0
	for rows.Next() {
		var id string
		var worked bool
		if err := rows.Scan(&id, &worked); err != nil {
			return Before{}, err
		}
		if n++; !s.marks.of(id).is() {
			before.Free, before.Soon = false, before.Soon && worked
		}
	}
	before.Free = before.Free && n < aheadLimit
	return before, rows.Err()
}

// AwaitHead waits until nothing is pending ahead of an ordered row; see txn.Store.
func (s *Table) AwaitHead(ctx context.Context, t *txn.Transaction) bool {
	for look := firstLook; ; look = min(look*3/2, lastLook) {
		rows, err := s.db.Pool().Query(ctx, Ahead, pgx.QueryExecModeCacheDescribe, t.Topic, t.ShardKey, t.ID)
		if err != nil {
			return false
		}
		before, err := s.ReadAhead(rows)
		if err != nil || before.Free || !before.Soon {
			return err == nil && before.Free
		}
		if !pause.For(ctx, look) {
			return false
		}
	}
}
