// Package postgres is the service's connection to its database: a pool that admits only sessions that can write, through
// a connection pooler or without one; the confirmation of commits by standbys; and the wake-up calls between replicas.
// It knows no table but for the question whether the tables are there.
//
// The packages below it each have one job on the service's tables: rows (reading, writing and fencing transactions, and
// their delivered marks), leases (who may deliver what), accepted (queues that operators have accepted) and retention.
// Local transactions are run by localtx.
package postgres
