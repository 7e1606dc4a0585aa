package localtx

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/txn"
)

// TestEnding judges each sort of failure at each phase. What it must never do is call a transaction failed whose COMMIT may
// have happened: everything that is not certainly rolled back is unknown.
func TestEnding(t *testing.T) {
	t.Parallel()
	reported := func(code string, and ...func(*pgconn.PgError)) error {
		e := &pgconn.PgError{Code: code, Severity: "ERROR", SeverityUnlocalized: "ERROR", Message: "m"}
		for _, change := range and {
			change(e)
		}
		return fmt.Errorf("wrapped: %w", e)
	}
	fatal := func(e *pgconn.PgError) { e.SeverityUnlocalized = "FATAL" }
	named := func(e *pgconn.PgError) { e.ConstraintName = "stock_not_negative" }
	ownRow := func(e *pgconn.PgError) {
		e.SchemaName, e.TableName, e.ConstraintName = "txsvc", "transactions", "transactions_pkey"
	}
	unsent := pgx.ErrPreprocessingBatch{}
	broken := fmt.Errorf("read: %w", io.ErrUnexpectedEOF)
	overdue := fmt.Errorf("%w: %w", errOverdue, broken)
	for _, tc := range []struct {
		name     string
		err      error
		at, sent phase
		lost     bool
		want     endKind
		code     txn.Code
	}{
		{"reply to COMMIT lost", broken, phaseCommit, phaseCommit, true, endUnknown, ""},
		{"reply to the row lost, and COMMIT was sent with it", broken, phaseRow, phaseCommit, true, endUnknown, ""},
		{"reply to the row lost, and COMMIT was not sent", broken, phaseRow, phaseRow, true, endFailed, txn.CodeDatabaseUnavailable},
		{"given up while COMMIT may run", overdue, phaseBody, phaseCommit, true, endUnknown, ""},
		{"given up before COMMIT", overdue, phaseBody, phaseBody, true, endFailed, txn.CodeDatabaseUnavailable},
		{"given up at the row", overdue, phaseRow, phaseRow, true, endFailed, txn.CodeDatabaseUnavailable},
		{"given up at the line", overdue, phaseLine, phaseLine, true, endFailed, txn.CodeOverloaded},
		{"never encoded", unsent, phaseBody, phaseCommit, true, endFailed, txn.CodeInternal},
		{"ended by the program", errEnded, phaseEnded, phaseBody, false, endUnknown, ""},
		{"ended by the program, which refused, too", errors.Join(&txn.Rejection{}, errEnded), phaseEnded, phaseBody, false, endUnknown, ""},
		{"no standby confirmed", postgres.ErrUnconfirmed, phaseCommit, phaseCommit, false, endUnknown, ""},
		{"COMMIT of a failed transaction", errNotCommitted, phaseCommit, phaseCommit, false, endFailed, txn.CodeInternal},

		{"deferred constraint", reported("23503", named), phaseCommit, phaseCommit, false, endRejected, ""},
		{"serialization failure at COMMIT", reported("40001"), phaseCommit, phaseCommit, false, endAgain, ""},
		{"session ended at COMMIT", reported("57P01", fatal), phaseCommit, phaseCommit, true, endUnknown, ""},
		{"disk full at COMMIT", reported("53100"), phaseCommit, phaseCommit, false, endUnknown, ""},
		{"session ended before COMMIT", reported("57P01", fatal), phaseBody, phaseCommit, true, endFailed, txn.CodeDatabaseUnavailable},

		{"id taken", reported("23505", ownRow), phaseRow, phaseCommit, false, endTaken, ""},
		{"fence on this half message", errFenced, phaseRow, phaseRow, false, endTaken, ""},
		{"id taken at the last statement", reported("23505", ownRow), phaseBody, phaseCommit, false, endTaken, ""},
		{"constraint with a name", reported("23514", named), phaseBody, phaseCommit, false, endRejected, ""},
		{"constraint with a name at the row", reported("23514", named), phaseRow, phaseCommit, false, endFailed, txn.CodeInternal},
		{"no partition", reported("23514"), phaseBody, phaseCommit, false, endFailed, txn.CodeInternal},
		{"RAISE", reported("P0001"), phaseBody, phaseCommit, false, endRejected, ""},
		{"deadlock", reported("40P01"), phaseBody, phaseCommit, false, endAgain, ""},
		{"value out of range", reported("22003"), phaseBody, phaseCommit, false, endFailed, txn.CodeRejected},
		{"value out of range at the row", reported("22003"), phaseRow, phaseCommit, false, endFailed, txn.CodeInternal},
		{"statement_timeout", reported("57014"), phaseBody, phaseCommit, false, endFailed, txn.CodeDatabaseUnavailable},
		{"statement_timeout at the row", reported("57014"), phaseRow, phaseCommit, false, endFailed, txn.CodeConflict},
		{"statement_timeout in the line", reported("57014"), phaseLine, phaseCommit, false, endFailed, txn.CodeOverloaded},
		{"read-only", reported("25006"), phaseRow, phaseCommit, false, endFailed, txn.CodeDatabaseUnavailable},

		{"refused by the program", &txn.Rejection{Message: "no"}, phaseBody, phaseBody, false, endRejected, ""},
		{"answered by the program", txn.Errorf(txn.CodeConflict, "no"), phaseBody, phaseBody, false, endFailed, txn.CodeConflict},
		{"failure of the program", errors.New("no"), phaseBody, phaseBody, false, endFailed, txn.CodeInternal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := failure{err: tc.err, at: tc.at, sent: tc.sent, lost: tc.lost}.ending()
			if got.kind != tc.want {
				t.Fatalf("got ending %d (%v), want %d", got.kind, got.err, tc.want)
			}
			if tc.code != "" && txn.CodeOf(got.err) != tc.code {
				t.Errorf("got code %s (%v), want %s", txn.CodeOf(got.err), got.err, tc.code)
			}
			if (got.kind == endRejected) != (got.rejection != nil) {
				t.Errorf("got rejection %v", got.rejection)
			}
		})
	}
}
