package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// contract is openapi.yaml, for any address.
var contract = sync.OnceValues(func() (routers.Router, error) {
	document, err := openapi3.NewLoader().LoadFromFile("../../../openapi.yaml")
	if err != nil {
		return nil, err
	}
	document.Servers = nil
	return gorillamux.NewRouter(document)
})

// checkContract holds a response against openapi.yaml.
func checkContract(response *http.Response, body []byte) error {
	router, err := contract()
	if err != nil {
		return err
	}
	route, params, err := router.FindRoute(response.Request)
	if err != nil {
		return fmt.Errorf("%s %s is not in openapi.yaml: %w", response.Request.Method, response.Request.URL.Path, err)
	}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: response.Request, PathParams: params, Route: route},
		Status:                 response.StatusCode, Header: response.Header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
	if err != nil {
		return fmt.Errorf("the answer to %s %s is not as openapi.yaml says: %w", response.Request.Method, response.Request.URL.Path, err)
	}
	return nil
}
