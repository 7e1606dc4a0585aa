package rocketmq

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// Properties on which consumers of a message can rely, besides RocketMQ's own.
const (
	propTxID        = "TX_ID"
	propTxKind      = "TX_KIND"
	propTraceparent = "traceparent"
)

// propTransactionID is a property that the broker adds to a committed half message; Java's MessageExt.getTransactionId reads it.
const propTransactionID = "__transactionId__"

// properties returns the message's properties, without those that only half messages have.
func properties(m *txn.Message) remoting.Properties {
	p := make(remoting.Properties, 0, 7+len(m.Properties))
	add := func(name, value string) {
		if value != "" { // RocketMQ has no empty properties
			p = append(p, remoting.Property{Name: name, Value: value})
		}
	}
	keys := m.Keys
	if m.TxID != "" {
		keys = append([]string{m.TxID}, keys...)
	}
	add(remoting.PropKeys, strings.Join(keys, " "))
	add(remoting.PropTags, m.Tag)
	add(remoting.PropShardingKey, m.ShardKey)
	add(propTxID, m.TxID)
	add(propTxKind, m.Kind)
	add(propTraceparent, m.Traceparent)
	for _, name := range slices.Sorted(maps.Keys(m.Properties)) {
		add(name, m.Properties[name])
	}
	return p
}

// halfProperties adds the time of the first check-back.
func halfProperties(m *txn.Message) remoting.Properties {
	p := properties(m)
	if m.Immunity > 0 {
		p = append(p, remoting.Property{Name: remoting.PropImmunity, Value: strconv.Itoa(int(m.Immunity.Seconds()))})
	}
	return p
}

// notesOfCommit are the properties that the broker leaves on a committed half message. Messages without a half message get them,
// too, so that consumers see no difference. TRAN_MSG=true is left out, because it would make them half messages.
func notesOfCommit(group string, m *txn.Message) remoting.Properties {
	return remoting.Properties{{Name: remoting.PropGroup, Value: group}, {Name: propTransactionID, Value: m.UniqKey}}
}

func sendRequest(m *txn.Message) *remoting.SendRequest {
	return &remoting.SendRequest{
		Topic: m.Topic, QueueID: m.Queue.ID, UniqKey: m.UniqKey, Properties: properties(m), Body: m.Body,
	}
}

// stored is a message as read from a broker, without the user's properties, which cannot be told from the others.
func stored(broker string, m *remoting.Message) txn.Message {
	p := m.Properties
	read := txn.Message{
		UniqKey: m.UniqKey(), Topic: m.Topic, Tag: p.Get(remoting.PropTags), ShardKey: p.Get(remoting.PropShardingKey),
		TxID: p.Get(propTxID), Kind: p.Get(propTxKind), Traceparent: p.Get(propTraceparent), Body: m.Body,
		Keys: []string{}, Queue: txn.Queue{Broker: broker, ID: int(m.QueueID)},
	}
	for _, key := range strings.Fields(p.Get(remoting.PropKeys)) {
		if key != read.TxID {
			read.Keys = append(read.Keys, key)
		}
	}
	return read
}

// checkback returns the message of a check-back, and the copy of its half message that the broker asks about.
func checkback(cb *remoting.Checkback) (txn.Message, txn.Half) {
	m := stored(cb.Broker, &cb.Message)
	m.UniqKey = cb.UniqKey
	h := txn.Half{
		UniqKey: cb.UniqKey, Broker: cb.Broker, CommitLogOffset: cb.CommitLogOffset, QueueOffset: cb.HalfQueueOffset,
		TransactionID: cb.TransactionID, FromCheck: true, StoredAt: time.UnixMilli(cb.Message.BornAt),
	}
	return m, h
}

// native sends half messages over the wire client.
type native struct{ remote *remoting.Client }

func (n native) sendHalf(ctx context.Context, m *txn.Message) (remoting.SendResult, error) {
	request := sendRequest(m)
	request.Half, request.Properties = true, halfProperties(m)
	return n.remote.Send(ctx, m.Queue.Broker, request)
}

func (native) close() {}
