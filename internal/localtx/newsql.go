package localtx

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
		p.Keep = keeping(statements[len(statements)-1])
	}
	return p
}

// keeping is the statement with its first row written into the transaction's row. It becomes a query of a WITH, which is
// executed as a whole because the aggregate reads it as a whole. The queries of its own WITH stand beside it: some of
// them change data, and PostgreSQL takes those at the top only. The line break ends a comment at the statement's end.
func keeping(s sqltext.Statement) string {
	q, ok := s.Query()
	if !ok {
		return ""
	}
	with := "WITH "
	if q.With != "" {
		with = q.With + "\n, "
	}
	return fmt.Sprintf("%stxsvc_last AS (%s\n)\nUPDATE txsvc.transactions SET result = (SELECT json_agg(txsvc_row)->0 FROM txsvc_last AS txsvc_row)\n"+
		"WHERE id = $%d::text RETURNING result::text", with, q.Main, len(s.Args)+1)
}
