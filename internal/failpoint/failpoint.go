//go:build !failpoints

// Package failpoint lets tests kill the process at a named point of a transaction. It does nothing unless the binary
// was built with the tag "failpoints", which only tests do.
package failpoint

// Hit does nothing in this build.
func Hit(string) {}

// Hook returns nil in this build; see failpoint_on.go.
func Hook() func(string) { return nil }

// Armed is always false in this build, so that code behind it is compiled away.
func Armed(string) bool { return false }
