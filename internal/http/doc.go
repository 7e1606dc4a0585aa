// Package http is the HTTP API of txsvc. It turns requests into calls of the domain, and the domain's answers and errors into
// JSON, as openapi.yaml at the root of the module says. The statuses of errors are given here only, in one table (problem.go). The
// parts that the API calls come in Config.
package http
