package http

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/txsvc/txsvc/internal/strictjson"
	"github.com/txsvc/txsvc/internal/txn"
)

// previewRoute answers where a message would go.
func (a *api) previewRoute(w http.ResponseWriter, r *http.Request) error {
	share := &bodyShare{of: &a.bodies}
	defer share.free()
	data, err := readBody(w, r, share)
	if err != nil {
		return err
	}
	query, err := decodePreview(data)
	if err != nil {
		return err
	}
	preview, err := a.Routes.Preview(r.Context(), query)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, typeJSON, previewJSON{
		Topic: preview.Topic, Queue: queueJSON{preview.Route.Queue.Broker, preview.Route.Queue.ID}, Lane: optional(preview.Route.Lane),
		Selector: preview.Route.Selector, Reason: preview.Route.Reason, Queues: preview.Queues,
	})
}

// previewJSON is the schema RoutePreview of openapi.yaml.
type previewJSON struct {
	Topic    string    `json:"topic"`
	Queue    queueJSON `json:"queue"`
	Lane     optional  `json:"lane"`
	Selector string    `json:"selector"`
	Reason   string    `json:"reason"`
	Queues   int       `json:"queues"`
}

// previewDecoder reads the body of a preview, as strictly as that of a transaction.
type previewDecoder struct {
	*decoder
	query   txn.RouteQuery
	headers http.Header
}

func decodePreview(data []byte) (txn.RouteQuery, error) {
	reader := strictjson.Open(data)
	defer reader.Close()
	d := &previewDecoder{decoder: &decoder{json: reader}, headers: make(http.Header)}
	if err := d.object(d.field); err != nil {
		d.syntax(err)
	} else if len(d.wrong) == 0 {
		d.complete()
	}
	if len(d.wrong) > 0 {
		return txn.RouteQuery{}, txn.Invalid(d.wrong...)
	}
	d.query.Header = d.headers.Get
	return d.query, nil
}

// complete checks the fields against one another.
func (d *previewDecoder) complete() {
	switch {
	case d.query.Kind == "" && d.query.Topic == "":
		d.add("", "kind or topic is required")
	case d.query.Kind != "" && d.query.Topic != "":
		d.add("/topic", "must be left out when kind is given: the kind has a topic")
	}
	d.wrong = append(d.wrong, txn.CheckShardKey(d.query.ShardKey)...)
}

func (d *previewDecoder) field() error {
	name, err := d.json.Name()
	if err != nil {
		return err
	}
	switch string(name) {
	case "kind":
		return d.name(&d.query.Kind)
	case "topic":
		return d.name(&d.query.Topic)
	case "shard_key":
		return d.string(&d.query.ShardKey)
	case "selector_arg":
		return d.argument(&d.query.Arg)
	case "payload":
		return d.raw(&d.query.Payload)
	case "headers":
		return d.header()
	default:
		d.addHere("is not a field of this request")
		return d.json.Skip()
	}
}

// name reads the name of a kind or a topic.
func (d *previewDecoder) name(to *string) error {
	wrong := len(d.wrong)
	err := d.string(to)
	switch n := len(*to); {
	case err != nil || len(d.wrong) > wrong:
	case n == 0:
		d.addHere("must not be empty")
	case n > maxKindLength:
		d.addHere("has %d bytes, at most %d are allowed", n, maxKindLength)
	}
	return err
}

// header reads the headers that the request for the message would have.
func (d *previewDecoder) header() error {
	if d.json.Kind() != '{' {
		return d.skip("must be an object of strings")
	}
	return d.each(func() error {
		text, err := d.json.Name()
		if err != nil {
			return err
		}
		name := string(text)
		var value string
		err = d.string(&value)
		d.headers.Set(name, value)
		return err
	})
}

// topicQueues answers with the queues of a topic.
func (a *api) topicQueues(w http.ResponseWriter, r *http.Request) error {
	told, err := a.Routes.TopicQueues(r.Context(), chi.URLParam(r, "topic"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, typeJSON, encodeTopic(&told))
}

// topicJSON is the schema TopicQueues of openapi.yaml.
type topicJSON struct {
	Topic     string            `json:"topic"`
	Selector  string            `json:"selector"`
	OnChange  txn.OnChange      `json:"on_change"`
	Kinds     []kindRoutingJSON `json:"kinds"`
	Queues    []queueStateJSON  `json:"queues"`
	ChangedAt instant           `json:"changed_at"`
	Accepted  *acceptedJSON     `json:"accepted"`
}

type kindRoutingJSON struct {
	Kind     string       `json:"kind"`
	Selector string       `json:"selector"`
	OnChange txn.OnChange `json:"on_change"`
}

type queueStateJSON struct {
	Broker   string `json:"broker"`
	ID       int    `json:"id"`
	Writable bool   `json:"writable"`
	Readable bool   `json:"readable"`
	Accepted *bool  `json:"accepted"`
}

type acceptedJSON struct {
	Version int64   `json:"version"`
	At      instant `json:"at"`
	PauseMS int64   `json:"pause_ms"`
}

func encodeTopic(t *txn.TopicQueues) topicJSON {
	out := topicJSON{
		Topic: t.Topic, Selector: t.Selector, OnChange: t.OnChange, Kinds: make([]kindRoutingJSON, 0, len(t.Kinds)),
		Queues: make([]queueStateJSON, 0, len(t.Queues)), ChangedAt: instant(t.ChangedAt),
	}
	for _, k := range t.Kinds {
		out.Kinds = append(out.Kinds, kindRoutingJSON(k))
	}
	for _, q := range t.Queues {
		state := queueStateJSON{Broker: q.Broker, ID: q.ID, Writable: q.Writable, Readable: q.Readable}
		if t.Version > 0 {
			state.Accepted = new(q.Accepted)
		}
		out.Queues = append(out.Queues, state)
	}
	if t.Version > 0 {
		// Rounded up, because 0 means that the list is in use.
		pause := (t.Pause + time.Millisecond - 1).Milliseconds()
		out.Accepted = &acceptedJSON{Version: t.Version, At: instant(t.AcceptedAt), PauseMS: pause}
	}
	return out
}
