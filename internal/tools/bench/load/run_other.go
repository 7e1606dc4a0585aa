//go:build !linux

package load

import (
	"context"
	"errors"
)

// Run needs Linux, because it uses epoll.
func Run(context.Context, Options) (*Result, error) {
	return nil, errors.New("the load generator needs Linux")
}
