package localtx_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx"
	"github.com/txsvc/txsvc/internal/txn"
)

// What is known beforehand goes to the server at once, whatever the kind's timeout and isolation level.
func TestRunTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	kept, err := localtx.ParseSQL(`INSERT INTO notes (id) VALUES (@id); SELECT id FROM notes WHERE id = @id`)
	if err != nil {
		t.Fatal(err)
	}
	e := setup(t, withURL(p.through), withTables(notes), withProgram("sql", noteSQL), withProgram("handler", noteHandler),
		withProgram("kept", kept), withProgram("serializable", isolated{statements(`INSERT INTO notes VALUES ($1)`), pgx.Serializable}))
	for _, tt := range []struct {
		kind    string
		timeout time.Duration
		want    int
	}{
		{"orders", 5 * time.Second, 1}, {"orders", 3 * time.Second, 1}, {"sql", 5 * time.Second, 1}, {"sql", 7 * time.Second, 1},
		{"kept", 5 * time.Second, 1}, {"serializable", 5 * time.Second, 1},
		{"handler", 5 * time.Second, 4}, {"handler", 3 * time.Second, 4}, // BEGIN, row, insert, result and COMMIT
	} {
		var got int
		for i := range 3 { // the first two prepare the statements, on one connection
			before := p.requests()
			wantKind(t, e.store.Run(t.Context(), attempt(tt.kind, tt.kind+tt.timeout.String()+string(rune('a'+i)), order, tt.timeout)), txn.OutcomeCommitted)
			got = p.requests() - before
		}
		if got != tt.want {
			t.Errorf("%s with a timeout of %s: got %d round trips, want %d", tt.kind, tt.timeout, got, tt.want)
		}
	}
}
