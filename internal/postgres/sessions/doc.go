// Package sessions is the pool of connections, and what the service knows of the session of each. The pool admits only
// sessions that can write, through a connection pooler or without one, and notices when a server went away before anything is
// sent to it.
package sessions
