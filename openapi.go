// Package txsvc holds the HTTP contract, openapi.yaml, for the binary to serve. It imports nothing.
package txsvc

import _ "embed"

// OpenAPI is openapi.yaml as it stands at the root of the repository. It must not be changed.
//
//go:embed openapi.yaml
var OpenAPI []byte
