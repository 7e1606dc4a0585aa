// Package http is the HTTP API of txsvc. It turns requests into calls of the domain, and the domain's answers and errors into
// JSON, as openapi.yaml at the root of the module says. Statuses are given here only, in one table (problem.go). Of this module
// the package imports txn and messages; everything else comes in Config.
package http
