package http

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/txsvc/txsvc/internal/messages"
	"github.com/txsvc/txsvc/internal/strictjson"
	"github.com/txsvc/txsvc/internal/txn"
)

// Messages sends messages without a transaction; messages.Service implements it.
type Messages interface {
	// Send sends one message or a batch. Errors that are not *txn.Error are answered as internal.
	Send(ctx context.Context, r messages.Request) (*messages.Receipt, error)
}

// receiptJSON is the schema Receipt of openapi.yaml.
type receiptJSON struct {
	Status     string        `json:"status"`
	Advice     optional      `json:"advice"`
	Mode       messages.Mode `json:"mode"`
	Topic      string        `json:"topic"`
	ShardKey   string        `json:"shard_key"`
	Queue      queueJSON     `json:"queue"`
	Route      routeJSON     `json:"route"`
	MessageIDs []string      `json:"message_ids"`
}

// send answers POST /v1/messages: 201 when the broker has stored the messages, 202 when nobody waited for the broker.
func (a *api) send(w http.ResponseWriter, r *http.Request) error {
	share := &bodyShare{of: &a.bodies}
	defer share.free()
	data, err := readBody(w, r, share)
	if err != nil {
		return err
	}
	request, err := decodeMessages(data)
	if err != nil {
		return err
	}
	request.Traceparent, request.Header = traceparent(r.Header), r.Header.Get
	receipt, err := a.Messages.Send(r.Context(), request)
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if receipt.Mode != messages.ModeSync {
		status = http.StatusAccepted
	}
	return writeJSON(w, status, typeJSON, &receiptJSON{
		Status: receipt.Status, Advice: optional(receipt.Advice), Mode: receipt.Mode, Topic: receipt.Topic, ShardKey: receipt.ShardKey,
		Queue:      queueJSON{receipt.Route.Queue.Broker, receipt.Route.Queue.ID},
		Route:      routeJSON{receipt.Route.Selector, optional(receipt.Route.Lane), receipt.Route.Reason},
		MessageIDs: receipt.MessageIDs,
	})
}

// messageDecoder reads a request for messages, as strictly as decoder reads one for a transaction.
type messageDecoder struct {
	decoder
	request messages.Request
	single  messages.Message // of the fields at the top
	given   []string         // those of them that are there
	bodies  int              // of the message that is being read: body and body_base64
	batched int              // messages of the batch
}

// decodeMessages returns the request in data. Bodies that are JSON are parts of data, byte for byte as sent. Errors are
// *txn.Error with CodeInvalidRequest.
func decodeMessages(data []byte) (messages.Request, error) {
	reader := strictjson.Open(data)
	defer reader.Close()
	d := &messageDecoder{decoder: decoder{json: reader}}
	if err := d.object(d.field); err != nil {
		d.syntax(err)
	} else if len(d.wrong) == 0 {
		d.settle()
	}
	if len(d.wrong) > 0 {
		return messages.Request{}, txn.Invalid(d.wrong...)
	}
	return d.request, nil
}

// settle makes the fields at the top a message, unless there is a batch.
func (d *messageDecoder) settle() {
	if !d.request.Batch {
		d.request.Messages = []messages.Message{d.single}
		return
	}
	if d.batched > messages.MaxBatch {
		d.add("/batch", "has %d messages, at most %d are allowed: send the others as another batch", d.batched, messages.MaxBatch)
	}
	for _, name := range d.given {
		d.add("/"+name, "cannot be given with batch: each of its messages has its own")
	}
}

func (d *messageDecoder) field() error {
	text, err := d.json.Name()
	if err != nil {
		return err
	}
	switch name := string(text); name {
	case "topic":
		return d.string(&d.request.Topic)
	case "shard_key":
		return d.string(&d.request.ShardKey)
	case "selector_arg":
		return d.argument(&d.request.SelectorArg)
	case "mode":
		return d.mode()
	case "delay_level":
		return d.delayLevel()
	case "deliver_at":
		return d.deliverAt()
	case "batch":
		return d.batch()
	default:
		d.given = append(d.given, name)
		return d.messageField(name, &d.single)
	}
}

// mode refuses an empty mode, which would mean sync.
func (d *messageDecoder) mode() error {
	wrong := len(d.wrong)
	err := d.string((*string)(&d.request.Mode))
	if err == nil && d.request.Mode == "" && len(d.wrong) == wrong {
		d.addHere("must be sync, async or oneway")
	}
	return err
}

func (d *messageDecoder) delayLevel() error {
	value, err := d.json.Raw()
	if err != nil {
		return err
	}
	level, err := strconv.Atoi(string(value))
	if err != nil || level < 1 || level > messages.MaxDelayLevel {
		d.addHere("must be a level from 1 to %d: %s", messages.MaxDelayLevel, messages.DelayLevels)
	}
	d.request.DelayLevel = level
	return nil
}

func (d *messageDecoder) deliverAt() error {
	var value string
	wrong := len(d.wrong)
	if err := d.string(&value); err != nil || len(d.wrong) > wrong {
		return err
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		d.addHere("must be a time as in RFC 3339, like 2030-01-31T12:00:00Z")
	}
	d.request.DeliverAt = at
	return nil
}

func (d *messageDecoder) batch() error {
	if d.json.Kind() != '[' {
		return d.skip("must be an array of messages")
	}
	d.request.Batch = true
	return d.each(d.element)
}

// element reads one message of a batch. Messages beyond the largest batch are counted and dropped.
func (d *messageDecoder) element() error {
	if d.json.Kind() != '{' {
		return d.skip("must be an object: a message")
	}
	d.bodies = 0
	var m messages.Message
	err := d.each(func() error {
		text, err := d.json.Name()
		if err != nil {
			return err
		}
		switch name := string(text); name {
		case "delay_level", "deliver_at":
			return d.skip("is not possible in a batch: RocketMQ stores it at once")
		case "topic", "shard_key", "selector_arg", "mode":
			return d.skip("is given once, beside batch: all messages of a batch go to one queue")
		default:
			return d.messageField(name, &m)
		}
	})
	if d.batched++; d.batched <= messages.MaxBatch {
		d.request.Messages = append(d.request.Messages, m)
	}
	return err
}

// messageField reads a field of a message. A single message has it at the top, one of a batch in its own object.
func (d *messageDecoder) messageField(name string, m *messages.Message) error {
	switch name {
	case "body":
		d.countBody()
		m.JSON = true
		return d.raw((*json.RawMessage)(&m.Body))
	case "body_base64":
		d.countBody()
		return d.base64(&m.Body)
	case "tag":
		return d.tag(&m.Tag)
	case "keys":
		return d.keys(&m.Keys)
	case "properties":
		return d.properties(&m.Properties)
	default:
		d.addHere("is not a field of this request")
		return d.json.Skip()
	}
}

func (d *messageDecoder) countBody() {
	if d.bodies++; d.bodies > 1 {
		d.addHere("cannot be given with the other one of body and body_base64")
	}
}

func (d *messageDecoder) base64(to *[]byte) error {
	var value string
	wrong := len(d.wrong)
	if err := d.string(&value); err != nil || len(d.wrong) > wrong {
		return err
	}
	body, err := base64.StdEncoding.Strict().DecodeString(value)
	if err != nil || strings.ContainsAny(value, "\r\n") { // the decoder ignores these
		d.addHere("must be Base64 with + and / and padding (RFC 4648, section 4)")
	} else if len(body) == 0 {
		d.addHere("must not be empty: RocketMQ has no empty messages")
	}
	*to = body
	return nil
}
