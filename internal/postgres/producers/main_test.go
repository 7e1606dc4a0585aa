package producers_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(stacktest.With(m))
}
