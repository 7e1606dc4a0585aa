package e2e

import (
	"os"
	"testing"

	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

func TestMain(m *testing.M) {
	code := stacktest.With(m).Run()
	cleanUp()
	os.Exit(code)
}
