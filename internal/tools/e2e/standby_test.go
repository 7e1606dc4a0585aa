package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// newStandbyEnv is on a database with a synchronous standby, and on brokers that ask back soon.
func newStandbyEnv(t *testing.T) (e *env, primary, standby *devstack.Server) {
	t.Helper()
	s := stacktest.Private(t, devstack.Options{DatabaseOnly: true})
	mq, err := impatientStack()
	if err != nil {
		t.Fatal(err)
	}
	primary = s.Server()
	if standby, err = s.Standby(); err != nil {
		t.Fatal(err)
	}
	e = newEnvMigrating(t, s.EitherURL(), mq.Nameservers())
	e.config = e.writeConfig(fmt.Sprintf(`
kinds:
  order.create:
    path: /v1/orders
    topic: %s
    timeout: 1s
    local: {handler: orders}
`, e.topic))
	if err := standby.Follow(t.Context(), primary); err != nil {
		t.Fatal(err)
	}
	if err := primary.WaitForStandby(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	return e, primary, standby
}

// awaitReadiness waits until /readyz has the status and says what is wanted.
func (s *service) awaitReadiness(status int, want string) {
	s.t.Helper()
	await.Success(s.t, readyTimeout, func() error {
		if got, body := s.page("/readyz"); got != status || !strings.Contains(body, want) {
			return fmt.Errorf("/readyz: got %d %s, want %d with %s", got, body, status, want)
		}
		return nil
	})
}

// awaitState waits until GET says so.
func (s *service) awaitState(id, state, delivery string) {
	s.t.Helper()
	await.Success(s.t, 60*time.Second, func() error {
		a, err := s.get(id)
		if err == nil && (a.State != state || a.Delivery != delivery) {
			err = fmt.Errorf("GET %s: got %d %s", id, a.HTTPStatus, a.Raw)
		}
		return err
	})
}

// No answer says "committed" before a standby has confirmed it, nothing is visible, and nothing that a standby did not get
// was ever there when it takes over.
func TestSynchronousStandby(t *testing.T) {
	t.Parallel()
	e, primary, standby := newStandbyEnv(t)
	s, other := e.start().ready(), e.start().ready()
	s.awaitReadiness(http.StatusOK, `"standbys","ok":true`)
	s.mustPost("/v1/orders", order("before", "k"), http.StatusCreated)

	standby.Kill()
	unconfirmed := func(id string) {
		t.Helper()
		answers := make(chan answer, 12)
		var posts sync.WaitGroup
		for i := range cap(answers) {
			posts.Go(func() {
				a, err := []*service{s, other}[i%2].post("/v1/orders", order(id, "k"))
				if err != nil {
					t.Error(err)
				}
				answers <- a
			})
		}
		posts.Wait()
		close(answers)
		unknown := 0
		for a := range answers {
			switch {
			case a.HTTPStatus == http.StatusAccepted && a.State == "unknown":
				unknown++
			case a.HTTPStatus != http.StatusConflict || a.Code != "conflict": // it is still running
				t.Errorf("one of the first posts of %s: got %d %s", id, a.HTTPStatus, a.Raw)
			}
		}
		if unknown == 0 {
			t.Errorf("no first post of %s was answered unknown", id)
		}
		for _, one := range []*service{s, other} {
			again, err := one.post("/v1/orders", order(id, "k"))
			if err != nil || again.State != "unknown" && again.HTTPStatus != http.StatusConflict {
				t.Errorf("again %s: got %d %s, %v", id, again.HTTPStatus, again.Raw, err)
			}
			if a, err := one.get(id); err != nil || a.State != "unknown" && a.HTTPStatus != http.StatusNotFound {
				t.Errorf("GET %s: got %d %s, %v", id, a.HTTPStatus, a.Raw, err)
			}
		}
		if !saysUnknown(id, s, other) {
			t.Errorf("GET %s: neither says that it is not known", id)
		}
	}
	unconfirmed("left")
	s.awaitReadiness(http.StatusServiceUnavailable, `"standbys","ok":false,"detail":"no synchronous standby confirms what is committed"`)
	e.cancelCommits("left") // the rows are seen now, and still not confirmed
	for _, one := range []*service{s, other} {
		if a, err := one.get("left"); err != nil || a.State != "unknown" {
			t.Errorf("GET of what is seen and not confirmed: got %d %s, %v", a.HTTPStatus, a.Raw, err)
		}
		if a, err := one.post("/v1/orders", order("left", "k")); err != nil || a.HTTPStatus != http.StatusAccepted || a.State != "unknown" {
			t.Errorf("again: got %d %s, %v", a.HTTPStatus, a.Raw, err)
		}
	}
	asked := s.metric(`txsvc_checkbacks_total`) + other.metric(`txsvc_checkbacks_total`)
	await.Success(t, 60*time.Second, func() error {
		if s.metric(`txsvc_checkbacks_total`)+other.metric(`txsvc_checkbacks_total`) < asked+2 {
			return errors.New("no check-backs")
		}
		return nil
	})
	if n := len(e.visible()["left"]); n != 0 {
		t.Errorf("visible %d times, and not confirmed", n)
	}

	if err := standby.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.awaitState("left", "committed", "delivered")
	s.awaitReadiness(http.StatusOK, `"standbys","ok":true`)

	standby.Kill()
	unconfirmed("lost")
	primary.Kill()
	if err := standby.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.ready()
	other.ready()
	s.awaitState("lost", "rolled_back", "none")
	for _, id := range []string{"before", "left"} {
		other.awaitState(id, "committed", "delivered")
	}
	if n := len(e.visible()["lost"]); n != 0 {
		t.Errorf("visible %d times, and lost", n)
	}
	again := s.mustPost("/v1/orders", order("lost", "k"), http.StatusCreated)
	if again.Replayed {
		t.Errorf("what was lost is repeated: %s", again.Raw)
	}
	s.stop()
	e.settle(60 * time.Second)
}

// saysUnknown tells whether one of the replicas does: the one whose COMMIT it is.
func saysUnknown(id string, replicas ...*service) bool {
	return slices.ContainsFunc(replicas, func(s *service) bool {
		a, err := s.get(id)
		return err == nil && a.State == "unknown"
	})
}

// cancelCommits does what operators do to sessions that hang, and returns when the row is seen.
func (e *env) cancelCommits(id string) {
	e.t.Helper()
	n := 0
	if err := e.db.QueryRow(context.Background(), `SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
		WHERE wait_event = 'SyncRep' AND query LIKE 'COMMIT%'`).Scan(&n); err != nil || n == 0 {
		e.t.Fatalf("cancelled %d COMMITs, %v", n, err)
	}
	await.Success(e.t, readyTimeout, func() error {
		seen := false
		err := e.db.QueryRow(context.Background(), `SELECT EXISTS (SELECT FROM txsvc.transactions WHERE id = $1)`, id).Scan(&seen)
		if err == nil && !seen {
			err = errors.New("the row is not seen")
		}
		return err
	})
}
