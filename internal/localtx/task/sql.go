package task

import (
	"fmt"
	"slices"

	"github.com/txsvc/txsvc/internal/localtx/sqltext"
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
		p.Last = storing(statements[len(statements)-1])
	}
	return p
}

// storing is the statement with its first row written into the transaction's row, beside the time at which it was decided.
// This is the one place where the service writes SQL around that of a kind.
//
// The statement becomes a query of a WITH. It is executed as a whole because the count reads all of it; only its first row is
// made JSON, however many there are. The queries of its own WITH come first at the same level, because some of them change
// data, and PostgreSQL allows those only there. The line break ends a comment at the statement's end.
func storing(s sqltext.Statement) string {
	q, ok := s.Query()
	if !ok {
		return ""
	}
	with := "WITH "
	if q.With != "" {
		with = q.With + "\n, "
	}
	id, most := fmt.Sprintf("$%d::text", len(s.Args)+1), fmt.Sprintf("$%d::int", len(s.Args)+2)
	return with + `txsvc_last AS (` + q.Main + `
)
UPDATE txsvc.transactions SET result = (
	SELECT CASE WHEN octet_length(txsvc_json::text) > ` + most + `
		THEN txsvc.refuse_result(octet_length(txsvc_json::text), ` + most + `) ELSE txsvc_json END
	FROM (SELECT CASE WHEN count(*) > 0 THEN (SELECT row_to_json(txsvc_row) FROM txsvc_last AS txsvc_row LIMIT 1) END AS txsvc_json
		FROM txsvc_last) AS txsvc_first),
	decided_at = decided_at + (clock_timestamp() - now())
WHERE id = ` + id + ` RETURNING result::text, decided_at`
}
