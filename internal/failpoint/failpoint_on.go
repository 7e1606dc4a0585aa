//go:build failpoints

// Package failpoint lets tests kill the process at a named point of a transaction; see failpoint.go.
package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// point and after come from TXSVC_FAILPOINT, "name@count": the first count hits of the point block for good, and the
// last of them kills the process with SIGKILL, so that exactly count transactions are at the point when it dies.
var (
	point, after = parse(os.Getenv("TXSVC_FAILPOINT"))
	hits         atomic.Int64
)

func parse(spec string) (string, int64) {
	name, count, ok := strings.Cut(spec, "@")
	if !ok {
		return spec, 1
	}
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil || n < 1 {
		panic("TXSVC_FAILPOINT: " + spec + " is not name@count")
	}
	return name, n
}

// Hit blocks when the point is armed, and kills the process when the last hit has come.
func Hit(name string) {
	if !Armed(name) {
		return
	}
	if hits.Add(1) >= after {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	select {}
}

// Hook returns Hit. It is for packages that must not import this one.
func Hook() func(string) { return Hit }

// Armed says whether the named point is the one to die at.
func Armed(name string) bool { return name == point }
