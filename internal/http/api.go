package http

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/txn"
)

// Transactions runs and finds transactions; txn.Service implements it.
type Transactions interface {
	// Submit runs one transaction. Errors that are not *txn.Error are answered as internal.
	Submit(ctx context.Context, r txn.Request) (*txn.Transaction, error)
	// Get returns the transaction with the id, or a *txn.Error.
	Get(ctx context.Context, id string) (*txn.Transaction, error)
	// Redeliver lets a parked message be tried once more, and returns the transaction, or a *txn.Error.
	Redeliver(ctx context.Context, id string) (*txn.Transaction, error)
}

// Routes says where messages go; routing.Router implements it. Errors are *txn.Error.
type Routes interface {
	// Preview says where a message would go now, without sending one.
	Preview(ctx context.Context, q txn.RouteQuery) (txn.RoutePreview, error)
	// TopicQueues returns the queues of a topic of the configuration.
	TopicQueues(ctx context.Context, topic string) (txn.TopicQueues, error)
}

// Readiness says whether the service's dependencies can be used now.
type Readiness interface {
	// Ready checks every dependency and returns before ctx ends.
	Ready(ctx context.Context) []Check
}

// Check is the state of one dependency. Everybody may see Detail: it names the missing thing, such as a topic, and holds no
// secret.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	// Degrades: the dependency is not OK, but most requests can be served all the same.
	Degrades bool `json:"-"`
}

// Config has the parts of the API. All of them are required, unless their comment says otherwise.
type Config struct {
	Transactions Transactions
	Routes       Routes
	Messages     Messages
	Readiness    Readiness
	Kinds        []*txn.Kind
	Timing       txn.Timing
	OpenAPI      []byte // openapi.yaml; it is served with the kinds
	Gatherer     prometheus.Gatherer
	Registerer   prometheus.Registerer
	Log          *slog.Logger
	Hosts        Hosts // the names that requests may be addressed to; zero: all
	// Stopping is closed when the service is about to stop. Then it is not ready any more, and each answer ends its connection, so
	// that clients send no further request on it. Nil: never.
	Stopping <-chan struct{}
}

// api holds what the handlers need.
type api struct {
	Config
	kinds    []byte // answer to GET /v1/kinds
	duration *prometheus.HistogramVec
	routes   chi.Routes
	bodies   bodies
	// document is served as /openapi.yaml. The first request for it makes it.
	document func() ([]byte, error)
	// resultLimits are the largest results of the kinds, in bytes.
	resultLimits map[string]int
}

// New returns the handler of the whole API. It fails when a kind's path cannot be served. It panics when its metric is registered
// already, as prometheus.MustRegister does.
func New(config Config) (http.Handler, error) {
	kinds, err := encodeKinds(config.Kinds)
	if err != nil {
		return nil, fmt.Errorf("encoding the kinds: %w", err)
	}
	a := &api{Config: config, kinds: kinds, duration: newDuration(config.Registerer)}
	a.document = sync.OnceValues(func() ([]byte, error) { return document(config.OpenAPI, config.Kinds) })
	a.resultLimits = make(map[string]int, len(config.Kinds))
	for _, kind := range config.Kinds {
		a.resultLimits[kind.Name] = kind.ResultBytes()
	}
	a.bodies.within = config.Timing.BodyWithin
	registerBodies(config.Registerer, &a.bodies)
	router := chi.NewRouter()
	a.routes = router
	return router, a.route(router)
}

// route declares every route. The endpoint at a kind's own path does the same as POST /v1/transactions. A test fails when the
// routes here and those of openapi.yaml differ.
func (a *api) route(r chi.Router) error {
	r.Use(a.observe, a.allowHosts, middleware.GetHead)
	r.NotFound(a.handle(a.notFound))
	r.MethodNotAllowed(a.handle(a.methodNotAllowed))

	// Transactions: run one, read one, have its message delivered.
	r.Post("/v1/transactions", a.handle(a.submit("")))
	r.Get("/v1/transactions/{id}", a.handle(a.get))
	r.Post("/v1/transactions/{id}/redeliver", a.handle(a.redeliver))
	// Routes: where a message would go, and among which queues.
	r.Post("/v1/routes/preview", a.handle(a.previewRoute))
	r.Get("/v1/topics/{topic}/queues", a.handle(a.topicQueues))
	// Messages without a transaction.
	r.Post("/v1/messages", a.handle(a.send))
	// What this instance is configured to do.
	r.Get("/v1/kinds", a.handle(a.listKinds))
	// For those who run it.
	r.Get("/healthz", a.handle(a.health))
	r.Get("/readyz", a.handle(a.ready))
	r.Get("/metrics", a.handle(a.metrics))
	r.Get("/openapi.yaml", a.handle(a.openAPI))
	// The kinds' own paths, last: they must not take the place of another route.
	for _, kind := range a.Kinds {
		if kind.Path == "" {
			continue
		}
		if err := checkKindPath(r, kind.Path); err != nil {
			return fmt.Errorf("path %q of kind %q: %w", kind.Path, kind.Name, err)
		}
		r.Post(kind.Path, a.handle(a.submit(kind.Name)))
	}
	return nil
}

// checkKindPath refuses a path that the router would read as a pattern, or that another route has.
func checkKindPath(r chi.Router, path string) error {
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "{}*?# ") {
		return errors.New("must begin with / and contain none of { } * ? # or spaces")
	}
	if len(allowed(r, path)) > 0 {
		return errors.New("is taken by another route")
	}
	return nil
}

// allowed returns the methods that the router answers on the path.
func allowed(routes chi.Routes, path string) []string {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if routes.Match(chi.NewRouteContext(), method, path) {
			methods = append(methods, method)
			if method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
		}
	}
	return methods
}
