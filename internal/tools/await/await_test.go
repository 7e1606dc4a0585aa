package await_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// What comes late is noticed soon, and what does not come is said.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, asked := time.Now(), 0
		err := await.Poll(time.Minute, func() error {
			if asked++; time.Since(began) < 10*time.Second {
				return errors.New("not yet")
			}
			return nil
		})
		if took := time.Since(began); err != nil || took > 10*time.Second+100*time.Millisecond || asked > 120 {
			t.Errorf("got %v after %s and %d questions, want nil within 100 ms and few questions", err, took, asked)
		}
		last := errors.New("the last word")
		err = await.Poll(time.Second, func() error { return last })
		if !errors.Is(err, last) || !strings.Contains(err.Error(), "after 1s") {
			t.Errorf("got %v, want the last word and the limit", err)
		}
	})
}
