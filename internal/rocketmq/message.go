package rocketmq

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// Properties that consumers of a message can rely on, beside RocketMQ's own.
const (
	propTxID        = "TX_ID"
	propTxKind      = "TX_KIND"
	propTraceparent = "traceparent"
)

// propTransactionID is what the broker adds when a half message is committed; Java's MessageExt.getTransactionId reads it.
const propTransactionID = "__transactionId__"

// properties are the message's, without those that only a half message has.
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

// halfProperties adds when the broker may ask for the first time.
func halfProperties(m *txn.Message) remoting.Properties {
	p := properties(m)
	if m.Immunity > 0 {
		p = append(p, remoting.Property{Name: remoting.PropImmunity, Value: strconv.Itoa(int(m.Immunity.Seconds()))})
	}
	return p
}

// notesOfCommit are what the broker leaves on a message that came from a half message, so that one without looks the
// same. TRAN_MSG=true, which it leaves too, would make it a half message.
func notesOfCommit(group string, m *txn.Message) remoting.Properties {
	return remoting.Properties{{Name: remoting.PropGroup, Value: group}, {Name: propTransactionID, Value: m.UniqKey}}
}

func sendRequest(m *txn.Message) *remoting.SendRequest {
	return &remoting.SendRequest{
		Topic: m.Topic, QueueID: m.Queue.ID, UniqKey: m.UniqKey, Properties: properties(m), Body: m.Body,
	}
}

// stored is a message as read from a broker, without the user's properties: nothing tells them from all others.
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

// checkback reads what a check-back is about: the message, and the copy that was asked about.
func checkback(cb *remoting.Checkback) (txn.Message, txn.Half) {
	m := stored(cb.Broker, &cb.Message)
	m.UniqKey = cb.UniqKey
	h := txn.Half{
		UniqKey: cb.UniqKey, Broker: cb.Broker, CommitLogOffset: cb.CommitLogOffset, QueueOffset: cb.HalfQueueOffset,
		TransactionID: cb.TransactionID, FromCheck: true,
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
