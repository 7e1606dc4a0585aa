// Package http is the HTTP API of txsvc: it turns requests into calls of the domain and the domain's answers and errors
// into JSON, as openapi.yaml at the root of the module says. Of this module it imports txn only; the flow, the readiness
// of the dependencies and the document itself are handed to it in Config.
package http
