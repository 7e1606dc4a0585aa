package http_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/go-chi/chi/v5"
)

// document is openapi.yaml, loaded, and able to judge requests and answers.
type document struct {
	*openapi3.T
	router routers.Router
}

// openAPI is openapi.yaml of the root directory.
var openAPI = sync.OnceValue(func() []byte {
	text, err := os.ReadFile("../../openapi.yaml")
	if err != nil {
		panic(err)
	}
	return text
})

// contract loads openapi.yaml once.
var contract = sync.OnceValue(func() *document {
	doc, err := openapi3.NewLoader().LoadFromData(openAPI())
	if err != nil {
		panic(err)
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		panic(err)
	}
	openapi3filter.RegisterBodyDecoder("text/plain", openapi3filter.PlainBodyDecoder)
	return &document{T: doc, router: router}
})

// check fails the test when the answer is not one that openapi.yaml has for the request, or when a request was carried out
// that openapi.yaml does not allow.
func (d *document) check(t testing.TB, r *http.Request, body []byte, a *answer) {
	t.Helper()
	r = r.Clone(context.Background())
	r.Body = io.NopCloser(bytes.NewReader(body))
	if strings.HasSuffix(r.Header.Get("Content-Type"), "+json") { // OpenAPI has no way to say that these are served too
		r.Header.Set("Content-Type", "application/json")
	}
	if r.Method == http.MethodHead {
		r.Method = http.MethodGet
	}
	route, params, err := d.router.FindRoute(r)
	if err != nil {
		d.checkUnmatched(t, a)
		return
	}
	options := &openapi3filter.Options{MultiError: true, IncludeResponseStatus: true}
	in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: options}
	if a.Code < 300 {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			t.Errorf("%s %s was carried out, but openapi.yaml does not allow it: %v", r.Method, r.URL, err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: a.Code, Header: a.Header(),
		Body: io.NopCloser(bytes.NewReader(a.Body.Bytes())), Options: options,
	}
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		t.Errorf("answer to %s %s is not in openapi.yaml: %v\nbody: %s", r.Method, r.URL, err, a.Body)
	}
}

// checkUnmatched checks answers that belong to no operation: there, only errors are.
func (d *document) checkUnmatched(t testing.TB, a *answer) {
	t.Helper()
	p := a.problem(a.Code, map[int]string{404: "not_found", 405: "method_not_allowed"}[a.Code])
	if a.Header().Get("Content-Type") != "application/problem+json" || p.Code == "" {
		t.Errorf("got %d as %s, want a problem document of status 404 or 405", a.Code, a.Header().Get("Content-Type"))
	}
}

func TestOpenAPIIsValidWithItsExamples(t *testing.T) {
	if err := contract().Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestRoutesAndOpenAPINameTheSame(t *testing.T) {
	served := map[string]bool{}
	router, ok := setup(t).handler.(chi.Routes)
	if !ok {
		t.Fatal("the handler has no routes to walk")
	}
	err := chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		served[method+" "+route] = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for path, item := range contract().Paths.Map() {
		for method := range item.Operations() {
			described[method+" "+path] = true
		}
	}
	if !maps.Equal(served, described) {
		t.Errorf("got routes\n%s\nwant those of openapi.yaml\n%s", list(served), list(described))
	}
}

func list(set map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(set)), "\n")
}

// TestEveryOperationDescribesItsAnswers holds the document to what the reader of one operation needs.
func TestEveryOperationDescribesItsAnswers(t *testing.T) {
	for path, item := range contract().Paths.Map() {
		for method, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				for media, content := range response.Value.Content {
					if status != "200" && status != "503" && content.Example == nil && len(content.Examples) == 0 {
						t.Errorf("%s %s has no example for %s as %s", method, path, status, media)
					}
				}
			}
			if operation.Summary == "" || operation.OperationID == "" {
				t.Errorf("%s %s has no summary or no operationId", method, path)
			}
		}
	}
}
