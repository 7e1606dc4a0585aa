package rows_test

import (
	"errors"
	"testing"

	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

func TestRunFindsNothing(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	if _, err := e.Store.Find(t.Context(), "nobody"); !errors.Is(err, txn.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}
