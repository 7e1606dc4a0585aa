// Package txsvc is the service as a program: Main runs all of its commands.
package txsvc

import (
	_ "embed"

	"github.com/txsvc/txsvc/internal/app"
)

//go:embed openapi.yaml
var openAPI []byte

// Main runs the command that the arguments of the process name, and ends the process.
func Main() { app.Main(app.Code{OpenAPI: openAPI}) }
