package http_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/payload"
	"github.com/txsvc/txsvc/internal/txn"
)

// schemasOfOthers are files that refer to each other, and to parts of themselves.
var schemasOfOthers = fstest.MapFS{
	"transfer.json": {Data: []byte(`{
		"type": "object", "required": ["amount", "to"], "$defs": {"amount": {"type": "integer", "minimum": 1}},
		"properties": {"amount": {"$ref": "#/$defs/amount"}, "to": {"$ref": "parts/account.json#/$defs/account"}, "note": {"type": ["string", "null"]}}
	}`)},
	"parts/account.json": {Data: []byte(`{"$defs": {"account": {"type": "object", "required": ["iban"], "properties": {"iban": {"$ref": "#/$defs/iban"}}},
		"iban": {"type": "string", "pattern": "^[A-Z]{2}", "examples": [{"$ref": "is a value here"}]}}}`)},
	"anchored.json": {Data: []byte(`{"$defs": {"a": {"$anchor": "here", "type": "integer"}}, "$ref": "#here"}`)},
}

// The document that is served has the instance's own kinds, with the schemas of their payloads, and judges requests as the
// service does.
func TestOpenAPIHasTheKinds(t *testing.T) {
	compile := func(name string) txn.Schema {
		s, err := payload.Compile(schemasOfOthers, name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	orderSchema, err := payload.Compile(os.DirFS("../orders"), "order.json")
	if err != nil {
		t.Fatal(err)
	}
	h := setup(t)
	config := h.config()
	config.Registerer = prometheus.NewRegistry()
	to := txn.Destination{Topic: "t", Selector: hash{}}
	config.Kinds = []*txn.Kind{
		{Name: "order.create", Path: "/v1/shop/orders", Destination: to, Local: "handler", Timeout: time.Second, Schema: orderSchema, Options: txn.DefaultOptions()},
		{Name: "transfer", Path: "/v1/transfers", Destination: to, Local: "sql", Timeout: time.Second, Schema: compile("transfer.json"), Options: txn.DefaultOptions()},
		{Name: "anchored", Path: "/v1/anchored", Destination: to, Local: "sql", Timeout: time.Second, Schema: compile("anchored.json"), Options: txn.DefaultOptions()},
		{Name: "anything", Path: "/v1/anything", Destination: to, Local: "sql", Timeout: time.Second, Options: txn.DefaultOptions()},
		{Name: "without.path", Destination: to, Local: "sql", Timeout: time.Second, Schema: compile("transfer.json"), Options: txn.DefaultOptions()},
	}
	h.handler = newHandler(t, config)
	a := h.get("/openapi.yaml").want(http.StatusOK)
	wantHeader(t, a, "Content-Type", "application/yaml")
	doc, err := openapi3.NewLoader().LoadFromData(a.Body.Bytes())
	if err != nil {
		t.Fatalf("%v\n%s", err, a.Body)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Errorf("the served document is not valid: %v", err)
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	if doc.Paths.Value("/v1/orders") != nil {
		t.Error("the document has the path of the sample, which this instance does not serve")
	}
	if doc.Components.Schemas["payload.without.path"] == nil {
		t.Error("a kind without a path has no schema")
	}
	item := `{"sku":"a","quantity":2.0,"amount_minor":0}`
	for _, tc := range []struct {
		path, payload string
		allowed       bool
	}{
		{"/v1/shop/orders", `{"customer":"c","currency":"EUR","items":[` + item + `],"more":1}`, true},
		{"/v1/shop/orders", `{"customer":"c","currency":"EUR","items":[]}`, false},
		{"/v1/shop/orders", `{"customer":"c","currency":"euro","items":[` + item + `]}`, false},
		{"/v1/transfers", `{"amount":1,"to":{"iban":"DE1"},"note":null}`, true},
		{"/v1/transfers", `{"amount":0,"to":{"iban":"DE1"}}`, false},
		{"/v1/transfers", `{"amount":1,"to":{"iban":"1"}}`, false},
		{"/v1/anchored", `{}`, true}, // its schema cannot stand there
		{"/v1/anything", `[1]`, true},
	} {
		r := newRequest(tc.path, `{"shard_key":"acme","payload":`+tc.payload+`}`)
		route, params, err := router.FindRoute(r)
		if err != nil {
			t.Errorf("%s: %v", tc.path, err)
			continue
		}
		err = openapi3filter.ValidateRequest(context.Background(), &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route})
		if (err == nil) != tc.allowed {
			t.Errorf("%s %s: the document says %v, want allowed %t", tc.path, tc.payload, err, tc.allowed)
		}
	}
	var kinds struct {
		Items []struct {
			Name   string
			Schema json.RawMessage
		}
	}
	if err := json.Unmarshal(h.get("/v1/kinds").want(http.StatusOK).Body.Bytes(), &kinds); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`"Payload of the handler orders"`, `"$ref":"#/$defs/parts~1account.json/$defs/iban"`, `"#here"`, `null`, `"iban"`} {
		if got := string(kinds.Items[i].Schema); !strings.Contains(got, want) {
			t.Errorf("the schema of %s is %s, want one that has %s", kinds.Items[i].Name, got, want)
		}
	}
	again, err := payload.Compile(fstest.MapFS{"one.json": {Data: kinds.Items[1].Schema}}, "one.json")
	if err != nil {
		t.Fatalf("the document of several files cannot be compiled: %v", err)
	}
	if wrong := again.Validate(json.RawMessage(`{"amount":1,"to":{"iban":7}}`)); len(wrong) != 1 || wrong[0].Pointer != "/to/iban" {
		t.Errorf("got %v, want an error at /to/iban", wrong)
	}
}
