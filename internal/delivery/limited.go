package delivery

import (
	"context"

	"github.com/txsvc/txsvc/internal/delivery/lines"
	"github.com/txsvc/txsvc/internal/delivery/outbox"
	"github.com/txsvc/txsvc/internal/txn"
)

// claimsAtOnce bounds the statements of outbox and lines, because the pool's connections are there for requests.
const claimsAtOnce = 2

// limited lets claimsAtOnce statements of outbox and lines run at once.
type limited struct {
	slots   chan struct{}
	outbox  outbox.Claims
	lines   lines.Claims
	waiting Waiting
}

func limit(o outbox.Claims, l lines.Claims, waiting Waiting) *limited {
	return &limited{slots: make(chan struct{}, claimsAtOnce), outbox: o, lines: l, waiting: waiting}
}

func (c *limited) enter() (leave func()) {
	c.slots <- struct{}{}
	return func() { <-c.slots }
}

// ClaimOutbox implements outbox.Claims.
func (c *limited) ClaimOutbox(ctx context.Context, broker, topic string, limit int) ([]txn.Claim, error) {
	defer c.enter()()
	return c.outbox.ClaimOutbox(ctx, broker, topic, limit)
}

// DueLines implements lines.Claims.
func (c *limited) DueLines(ctx context.Context, topic, after string, brokers []string, limit int) (due []string, last string, err error) {
	defer c.enter()()
	return c.lines.DueLines(ctx, topic, after, brokers, limit)
}

// ClaimLines implements lines.Claims.
func (c *limited) ClaimLines(ctx context.Context, topic string, shardKeys, brokers []string, limit int) ([]txn.Claim, error) {
	defer c.enter()()
	return c.lines.ClaimLines(ctx, topic, shardKeys, brokers, limit)
}

// Groups returns what waits; see Waiting.
func (c *limited) Groups(ctx context.Context) ([]txn.Group, error) {
	defer c.enter()()
	return c.waiting.Groups(ctx)
}
