// Command consumers runs push consumers of rocketmq-client-go until standard input ends, and prints a line for each
// message: the word message and tab-separated fields in Base64. Its arguments are the name servers, the topic, and for each
// consumer its group, "concurrently" or "orderly", and what it subscribes to: tags, or after "sql:" an SQL92 expression.
//
// The end-to-end tests run it, and its likeness in Java. It is a program of its own because the library's consumers have
// data races, which would fail any test with the race detector.
package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("fatal")
	if err := run(os.Args[1:]); err != nil {
		panic(err)
	}
}

func run(args []string) error {
	nameservers, topic := strings.Split(args[0], ";"), args[1]
	for rest := args[2:]; len(rest) > 0; rest = rest[3:] {
		if err := start(nameservers, topic, rest[0], rest[1] == "orderly", rest[2]); err != nil {
			return fmt.Errorf("starting consumer %s: %w", rest[0], err)
		}
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func start(nameservers []string, topic, group string, orderly bool, tags string) error {
	c, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName(group), consumer.WithInstance(group), consumer.WithConsumerOrder(orderly),
		consumer.WithNsResolver(primitive.NewPassthroughResolver(nameservers)),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
	if sql, ok := strings.CutPrefix(tags, "sql:"); ok {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
	}
	err = c.Subscribe(topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			write(group, m)
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	return c.Start()
}

var mu sync.Mutex // one line at a time

func write(group string, m *primitive.MessageExt) {
	fields := []string{
		group, m.Topic, m.Queue.BrokerName, strconv.Itoa(m.Queue.QueueId), strconv.FormatInt(m.QueueOffset, 10), m.MsgId,
		m.GetProperty(primitive.PropertyTransactionID), m.GetTags(), m.GetKeys(), string(m.Body),
	}
	for name, value := range m.GetProperties() {
		fields = append(fields, name, value)
	}
	for i := range fields {
		fields[i] = base64.StdEncoding.EncodeToString([]byte(fields[i]))
	}
	mu.Lock()
	defer mu.Unlock()
	fmt.Println("message\t" + strings.Join(fields, "\t"))
}
