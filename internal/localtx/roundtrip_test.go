package localtx_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// What is known beforehand goes to the server at once, whatever the kind's timeout and isolation level.
func TestRunTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	p := pgtest.NewProxy(t)
	kept, err := task.ParseSQL(`INSERT INTO notes (id) VALUES (@id); SELECT id FROM notes WHERE id = @id`)
	if err != nil {
		t.Fatal(err)
	}
	e := pgtest.New(t, pgtest.WithURL(p.Through), pgtest.WithTables(notes), pgtest.WithProgram("sql", noteSQL), pgtest.WithProgram("handler", noteHandler),
		pgtest.WithProgram("kept", kept), pgtest.WithProgram("serializable", pgtest.Isolated(pgtest.Statements(`INSERT INTO notes VALUES ($1)`), pgx.Serializable)))
	for _, tt := range []struct {
		kind    string
		timeout time.Duration
		want    int
	}{
		{"orders", 5 * time.Second, 1}, {"orders", 3 * time.Second, 1}, {"sql", 5 * time.Second, 1}, {"sql", 7 * time.Second, 1},
		{"kept", 5 * time.Second, 1}, {"serializable", 5 * time.Second, 1},
		{"handler", 5 * time.Second, 3}, {"handler", 3 * time.Second, 3}, // BEGIN, insert, row and COMMIT
	} {
		var got int
		for i := range 3 { // the first two prepare the statements, on one connection
			before := p.Requests()
			pgtest.WantKind(t, e.Store.Run(t.Context(), pgtest.Attempt(tt.kind, tt.kind+tt.timeout.String()+string(rune('a'+i)), pgtest.Order, tt.timeout)), txn.OutcomeCommitted)
			got = p.Requests() - before
		}
		if got != tt.want {
			t.Errorf("%s with a timeout of %s: got %d round trips, want %d", tt.kind, tt.timeout, got, tt.want)
		}
	}
}
