package rows_test

import (
	"testing"

	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// What is the same for all rows of a kind stands in the statement's text, whatever characters it has and however the database
// reads them.
func TestInsertLiterals(t *testing.T) {
	t.Parallel()
	const odd = `it's \' or \\'' $1 -- ` + "\n" + `E'é`
	e := pgtest.New(t, pgtest.WithProgram(odd, pgtest.Statements()))
	for _, conforming := range []string{"on", "off"} {
		e.Exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET standard_conforming_strings TO ` + conforming + `', current_database()); END $$`)
		s := e.Another(pgtest.WithProgram(odd, pgtest.Statements()))
		s.Tracking(t)
		for _, extras := range []bool{false, true} {
			for _, tracked := range []bool{false, true} {
				id := "tx-" + conforming + map[bool]string{true: "-extras"}[extras] + map[bool]string{true: "-tracked"}[tracked]
				a := pgtest.Attempt(odd, id, `{}`)
				a.Kind.Tag, a.Request.Tag = odd, odd
				if !extras {
					a.Request.Keys, a.Request.Properties, a.Request.Traceparent = nil, nil, ""
				}
				if tracked {
					a = s.Begun(t, a)
				}
				o := s.Run(t.Context(), a)
				pgtest.WantKind(t, o, txn.OutcomeCommitted)
				if got := e.Find(id); got.Kind != odd || got.Topic != "topic-"+odd || got.Tag != odd || len(got.Keys) != len(a.Request.Keys) {
					t.Errorf("%s: got kind %q, topic %q, tag %q, keys %q", id, got.Kind, got.Topic, got.Tag, got.Keys)
				}
				if n := e.Count(`txsvc.transactions WHERE id = $1 AND delivery = $2 AND (lease_until IS NULL) = $3`,
					id, map[bool]string{true: "tracked", false: "pending"}[tracked], tracked); n != 1 {
					t.Errorf("%s: the row is not as its process believes", id)
				}
			}
		}
	}
}
