package producers_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/postgres/producers"
)

// flushes is a database that keeps what is written.
type flushes struct {
	producers.Database
	last producers.Watermark
	err  error // of the next Write, which is executed all the same
}

func (f *flushes) Write(_ context.Context, _ string, w producers.Watermark) (bool, error) {
	f.last = w
	err := f.err
	f.err = nil
	return true, err
}

func (*flushes) Forget(context.Context, string) error { return nil }

// tracking is a process that has registered.
func tracking(t *testing.T) (*producers.Producers, *flushes) {
	t.Helper()
	f := &flushes{}
	p := producers.On(f, producers.NewSelf(), slog.New(slog.DiscardHandler))
	if err := p.Register(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	return p, f
}

func track(t *testing.T, p *producers.Producers, id string) (began time.Time) {
	t.Helper()
	began = p.Begin()
	if !p.Track(began, id) {
		t.Fatalf("%s is not tracked", id)
	}
	return began
}

func flush(t *testing.T, p *producers.Producers) {
	t.Helper()
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// What is handed over is forgotten, and the watermark passes it: a crash of the database that undid it would make the row one
// of a visible message.
func TestHandedOverForGood(t *testing.T) {
	p, f := tracking(t)
	began := track(t, p, "tx-1")
	p.HandOver(began)
	f.err = errors.New("no answer")
	if err := p.Flush(t.Context()); err == nil {
		t.Fatal("got no error")
	}
	for range 2 {
		if diff := cmp.Diff([]string{"tx-1"}, f.last.HandOver); diff != "" || !f.last.Durable {
			t.Errorf("handed over, durable: %t (-want +got):\n%s", f.last.Durable, diff)
		}
		flush(t, p)
	}
	if f.last.HandOver != nil || f.last.Durable || !f.last.VisibleBefore.After(began) {
		t.Errorf("got %+v, want a watermark after %s", f.last, began)
	}
}

// An attempt that will not write a tracked row any more does not hold the last watermark back: nobody would look for those that
// are visible after it.
func TestLastWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := tracking(t)
		ctx, cancel := context.WithCancel(t.Context())
		p.Begin()
		began := track(t, p, "tx-1")
		p.Delivered("tx-1", time.Now(), time.Minute)
		cancel()
		p.KeepTrack(ctx)
		if !f.last.VisibleBefore.After(began) || !f.last.Ceiling.Equal(f.last.VisibleBefore) {
			t.Errorf("got %+v, want nothing left, and a watermark after %s", f.last, began)
		}
	})
}

// A tracked row that is under way when the process ends is looked for.
func TestLastWatermarkLeavesSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := tracking(t)
		ctx, cancel := context.WithCancel(t.Context())
		began := track(t, p, "tx-1")
		cancel()
		p.KeepTrack(ctx)
		if f.last.VisibleBefore.After(began) || !f.last.Ceiling.After(began) {
			t.Errorf("got %+v, want a watermark up to %s, and a ceiling after it", f.last, began)
		}
		if p.Track(p.Begin(), "tx-2") {
			t.Error("a row is tracked after the end")
		}
	})
}

// While an attempt holds the watermark back, each flush differs from the one before all the same: a database that has lost it is
// seen to have lost what it handed over.
func TestFlushesAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := tracking(t)
		track(t, p, "tx-1")
		var before producers.Watermark
		for range 3 { // at one moment
			flush(t, p)
			if !f.last.Ceiling.After(before.Ceiling) || !before.Ceiling.IsZero() && !slices.Contains(f.last.After, before.Ceiling) {
				t.Errorf("after a flush with the ceiling %s: got %+v", before.Ceiling, f.last)
			}
			before = f.last
		}
	})
}
