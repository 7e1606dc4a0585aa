package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/txsvc/txsvc/internal/tools/verify"
)

// contender is one way to change the database, with or without a message, behind one HTTP endpoint.
type contender struct {
	name, does string
	path       string // that requests are posted to
	body       func(b []byte, n, keys int) []byte
	keys       int    // shard keys
	table      string // of the business change; its column id has the transaction's id
	tables     string // SQL that makes further tables
	topic      string // of the messages; empty: there are none
	kind       string // of the service; empty: another program
	ordered    bool

	build func(ctx context.Context) error // what the contender needs beside the service; nil: nothing
	// start returns the command that serves on an address.
	start func(address string) (command, error)
	// stays: the process runs from its first turn to the end, because it gets faster for as long as a minute.
	stays   bool
	warm    time.Duration // least warm-up of its first turn
	running *process

	answered int // 2xx, of all turns: as many messages have to become visible
	turns    []turn
	found    *verify.Findings // nil: not compared
}

// command is a program with its arguments and environment.
type command struct {
	args, env []string
}

const defaultKeys = 10_000

// appendNote makes the request of all contenders but those of orders.
func appendNote(b []byte, n, keys int) []byte {
	customer := int64(n * 7919 % keys)
	b = append(b, `{"shard_key":"customer-`...)
	b = strconv.AppendInt(b, customer, 10)
	b = append(b, `","payload":{"n":`...)
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, `,"customer":"customer-`...)
	b = strconv.AppendInt(b, customer, 10)
	return append(b, `","text":"two of tea, one cup; ring twice"}}`...)
}

// appendOrder makes an order of two items.
func appendOrder(b []byte, n, keys int) []byte {
	customer := int64(n * 7919 % keys)
	b = append(b, `{"shard_key":"customer-`...)
	b = strconv.AppendInt(b, customer, 10)
	b = append(b, `","payload":{"customer":"customer-`...)
	b = strconv.AppendInt(b, customer, 10)
	return append(b, `","currency":"EUR","items":[{"sku":"tea","quantity":2,"amount_minor":450},`+
		`{"sku":"cup","quantity":1,"amount_minor":1200}]}}`...)
}

// appendRequest makes a whole HTTP request.
func (c *contender) appendRequest(b, scratch []byte, n int) (request, body []byte) {
	body = c.body(scratch[:0], n, c.keys)
	b = append(b, "POST "...)
	b = append(b, c.path...)
	b = append(b, " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\n\r\n"...)
	return append(b, body...), body
}

// contenders are all contenders, in the order of tables and charts.
func (b *bench) contenders() []*contender {
	handler := func(name string) func(string) (command, error) {
		return func(address string) (command, error) {
			return command{args: []string{b.handler, name}, env: []string{"LISTEN=" + address, "TXSVC_DATABASE_URL=" + b.databaseURL}}, nil
		}
	}
	note := func(name, path, does string) *contender {
		return &contender{
			name: name, does: does, path: path, body: appendNote, keys: defaultKeys, table: "bench." + name + "_notes",
			topic: "bench-" + name, kind: "note." + name, start: b.service("native"),
		}
	}
	plain := note("plain", "/v1/notes", "handler without messages: net/http, encoding/json, two inserts pipelined")
	plain.topic, plain.kind, plain.start = "", "", handler("plain")
	strict := &contender{
		name: "strict", does: "handler without messages that decodes an order strictly, and inserts it with its items", path: "/v1/orders",
		body: appendOrder, keys: defaultKeys, table: "bench_strict.orders", start: handler("strict"),
	}
	sql := note("sql", "/v1/notes", "txsvc: one SQL statement with returning, half message")
	goKind := &contender{
		name: "go", does: "txsvc: the shipped handler in Go inserts an order with its items, half message", path: "/v1/orders",
		body: appendOrder, keys: defaultKeys, table: "public.orders", topic: "bench-go", kind: "order.create", start: b.service("native"),
	}
	ordered := note("ordered", "/v1/ordered", "txsvc: as sql, ordered, over 1,000 shard keys")
	ordered.keys, ordered.ordered = 1000, true
	outbox := note("outbox", "/v1/outbox", "txsvc: as sql, without a half message: sent after the commit")
	library := note("library", "/v1/library", "txsvc: as sql, half messages through rocketmq-client-go")
	library.start = b.service("library")
	return []*contender{plain, strict, sql, goKind, ordered, outbox, library, b.javaProducer(), b.riverInsert()}
}

// service starts the service with a transport of half messages.
func (b *bench) service(transport string) func(address string) (command, error) {
	return func(address string) (command, error) {
		return command{args: []string{b.txsvc, "serve"}, env: []string{
			"TXSVC_LISTEN=" + address, "TXSVC_DATABASE_URL=" + b.databaseURL, "TXSVC_NAMESERVERS=" + b.nameserver,
			"TXSVC_ROCKETMQ_TRANSPORT=" + transport, "TXSVC_CONFIG=" + b.kinds, "TXSVC_LOG_LEVEL=" + logLevel, "TXSVC_DRAIN_DELAY=0s",
		}}, nil
	}
}

// logLevel spares all contenders the log of single requests.
const logLevel = "error"

// choose keeps the contenders with these names, and all when there are none.
func choose(all []*contender, names []string) ([]*contender, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []*contender
	for _, name := range names {
		found := false
		for _, c := range all {
			if c.name == name {
				chosen, found = append(chosen, c), true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no contender %q", name)
		}
	}
	return chosen, nil
}
