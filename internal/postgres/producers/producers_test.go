package producers_test

import (
	"errors"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/postgres/producers"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// A half message is our own when its process has registered, in whatever process that is asked, or when a row names it.
func TestOwnHalf(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	own := func(want bool, id, uniqKey, what string) {
		t.Helper()
		if got, err := e.Store.OwnHalf(t.Context(), id, uniqKey); err != nil || got != want {
			t.Errorf("%s: got %t, %v, want %t", what, got, err, want)
		}
	}
	const here, there, gone = "0A000001000111111111", "0A000001000122222222", "0A000001000133333333"
	const rest = "000000010000"
	a := pgtest.Attempt("orders", "tx-1", pgtest.Order)
	pgtest.WantKind(t, e.Store.Run(t.Context(), a), txn.OutcomeCommitted)
	e.Exec(`INSERT INTO txsvc.producers (prefix, seen_at) VALUES ($1, now() - interval '31 days')`, gone)
	own(true, "tx-2", gone+rest, "a process that was there long ago")
	for range 2 {
		if err := e.Store.Register(t.Context(), here); err != nil {
			t.Fatal(err)
		}
	}
	e.Exec(`INSERT INTO txsvc.producers (prefix) VALUES ($1)`, there)
	own(true, "tx-2", here+rest, "this process")
	own(true, "tx-2", there+rest, "another process")
	own(false, "tx-2", gone+rest, "a process that is forgotten")
	own(true, "tx-1", a.Half.UniqKey, "one that a row names")
	own(false, "tx-2", a.Half.UniqKey, "one that the row of another id names")
	own(false, "tx-1", pgtest.SameRequest(a).Half.UniqKey, "one of an unknown process with an id that is known")
	fencedOne := pgtest.SameRequest(a)
	fencedOne.Request.ID, fencedOne.Message.TxID = "tx-3", "tx-3"
	if _, _, err := e.Store.Decide(t.Context(), fencedOne.Message, fencedOne.Half); err != nil {
		t.Fatal(err)
	}
	own(true, "tx-3", fencedOne.Half.UniqKey, "one that was fenced")
	own(false, "", "", "no message of ours")
}

// A process registers by itself when the database has lost it.
func TestRegistrationComesBack(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	e.Exec(`ALTER TABLE txsvc.producers RENAME TO away`)
	const prefix = "0A000001000111111111"
	if err := e.Store.Register(t.Context(), prefix); err == nil {
		t.Fatal("got no error without the table")
	}
	done := make(chan struct{})
	go func() { defer close(done); e.Store.KeepTrack(t.Context()) }()
	t.Cleanup(func() { <-done })
	e.Exec(`ALTER TABLE txsvc.away RENAME TO producers`)
	for deadline := time.Now().Add(pgtest.Patience); pgtest.Value[int](e, `SELECT count(*) FROM txsvc.producers WHERE prefix = $1`, prefix) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the process is not registered")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A flush that was given up can be executed after later ones. It takes nothing back.
func TestLateFlush(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	db := producers.In(e.Store.DB)
	const prefix = "0A000001000111111111"
	at := func(s int) time.Time { return time.Unix(int64(s), 0).UTC() }
	write := func(visible, settled, ceiling int, wantErr error, after ...int) {
		t.Helper()
		w := producers.Watermark{VisibleBefore: at(visible), SettledBefore: at(settled), Ceiling: at(ceiling)}
		for _, s := range after {
			w.After = append(w.After, at(s))
		}
		if _, err := db.Write(t.Context(), prefix, w); !errors.Is(err, wantErr) {
			t.Fatalf("got %v, want %v", err, wantErr)
		}
	}
	want := func(what string, visible, settled, ceiling int) {
		t.Helper()
		if n := e.Count(`txsvc.producers WHERE prefix = $1 AND visible_before = $2 AND settled_before = $3 AND ceiling = $4`,
			prefix, at(visible), at(settled), at(ceiling)); n != 1 {
			t.Errorf("%s: the watermark is not %d, %d, %d", what, visible, settled, ceiling)
		}
	}
	write(5, 5, 5, producers.ErrLost, 1)
	write(20, 30, 40, nil)
	write(10, 20, 30, nil)
	want("a late first one", 20, 30, 40)
	write(10, 20, 30, producers.ErrLost, 5, 8)
	want("a late one", 20, 30, 40)
	write(20, 31, 42, nil, 38, 40)
	write(20, 30, 41, producers.ErrLost, 40)
	want("a late one while the watermark stays", 20, 31, 42)
	write(45, 35, 45, nil, 42)
	want("the last one", 45, 35, 45)
}

// A process is not forgotten before its rows are adopted: without it they would say that their messages are visible.
func TestForgetKeepsWhatIsLeft(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	const here = "0A000001000111111111"
	a := pgtest.Attempt("orders", "tx-1", pgtest.Order)
	pgtest.WantKind(t, e.Store.Run(t.Context(), a), txn.OutcomeCommitted)
	e.Exec(`UPDATE txsvc.transactions SET delivery = 'tracked', lease_until = NULL, decided_at = now() - interval '31 days'`)
	e.Exec(`INSERT INTO txsvc.producers (prefix, format, seen_at, visible_before, settled_before, ceiling)
		VALUES ($1, 2, now() - interval '31 days', $2::timestamptz, $2, $2::timestamptz + interval '1 s')`, txn.ProducerOf(a.Half.UniqKey), a.CreatedAt)
	known := func() bool {
		t.Helper()
		if err := e.Store.Register(t.Context(), here); err != nil {
			t.Fatal(err)
		}
		return e.Count(`txsvc.producers WHERE prefix <> $1`, here) > 0
	}
	if !known() || e.Find("tx-1").Delivery != txn.DeliveryPending {
		t.Fatal("the process was forgotten, with a message that is not visible")
	}
	if n, err := e.Store.Adopt(t.Context()); n != 1 || err != nil {
		t.Fatalf("got %d rows adopted, %v, want 1", n, err)
	}
	if known() {
		t.Error("the process is known still, although nothing is left of it")
	}
}
