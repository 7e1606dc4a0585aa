package task

import (
	"fmt"
	"slices"
	"sync"

	"github.com/txsvc/txsvc/internal/localtx/sqltext"
	"github.com/txsvc/txsvc/internal/postgres/rows"
)

// ParseSQL reads a local transaction from its text; see NewSQL. Errors are *sqltext.Error.
func ParseSQL(text string) (SQL, error) {
	statements, err := sqltext.Parse(text)
	if err != nil {
		return SQL{}, err
	}
	return NewSQL(statements), nil
}

// NewSQL returns the local transaction that consists of the statements. The first row of the last one, as a JSON object,
// is the result; it is null when that statement gives no row, or is of a sort that gives none.
func NewSQL(statements []sqltext.Statement) SQL {
	var p SQL
	for _, s := range statements {
		p.Statements = append(p.Statements, Template{Text: s.Text, Args: slices.Clone(s.Args)})
	}
	if len(statements) > 0 {
		p.Last = lastOf(statements[len(statements)-1])
	}
	return p
}

// Last is the last statement of a local transaction whose first row is the result. The service puts SQL around it, here and
// nowhere else.
//
// The statement becomes a query of a WITH. It is executed as a whole, because a query that changes data always is, and the
// count reads all of any other; only its first row is made JSON. The queries of its own WITH come first at the same level,
// because some of them change data, and PostgreSQL allows those only there. The line break ends a comment at the statement's
// end.
type Last struct {
	with   string // up to the result
	result string // the expression; a parameter that is added is the limit of its size, in bytes
	args   int    // how many arguments the statement has itself
	alone  string

	into sync.Map // the statements of Into, of *rows.Text
}

func lastOf(s sqltext.Statement) *Last {
	q, ok := s.Query()
	if !ok {
		return nil
	}
	with := "WITH "
	if q.With != "" {
		with = q.With + "\n, "
	}
	n := len(s.Args)
	row := `SELECT row_to_json(txsvc_row) AS txsvc_json FROM txsvc_last AS txsvc_row LIMIT 1`
	if !q.Changes {
		row = `SELECT CASE WHEN count(*) > 0 THEN (` + row + `) END AS txsvc_json FROM txsvc_last`
	}
	limit := fmt.Sprintf("$%d::int", n+1)
	l := &Last{
		with: with + "txsvc_last AS (" + q.Main + "\n)\n",
		result: `(SELECT CASE WHEN octet_length(txsvc_json::text) > ` + limit + ` THEN txsvc.refuse_result(octet_length(txsvc_json::text), ` + limit + `)
	ELSE txsvc_json END FROM (` + row + `) AS txsvc_first)`,
		args: n,
	}
	l.alone = l.with + `SELECT ` + l.result + `::text`
	return l
}

// First is the number of the first parameter that can be added; the one before is the limit of the result's size, in bytes.
func (l *Last) First() int { return l.args + 2 }

// Alone is the statement that returns the result.
func (l *Last) Alone() string { return l.alone }

// Into is the statement that inserts the row of a transaction, with the result, and returns the result and the time of the
// decision.
func (l *Last) Into(row *rows.Text) string {
	if known, ok := l.into.Load(row); ok {
		return known.(string) //nolint:forcetypeassert // the map holds nothing else
	}
	text := l.with + `INSERT INTO ` + rows.TableName + ` (` + row.Columns + `, result, ` + row.Times + `) SELECT ` + row.Values + `, ` + l.result + `, ` +
		row.TimeValues + ` RETURNING result::text, decided_at`
	l.into.Store(row, text)
	return text
}
