// Package postgres is the service's database: writes on whose effect the service may act, since standbys have confirmed
// them; and the wake-up calls between replicas. Its connections are those of package sessions. It knows no table but for
// the question whether the tables are there.
//
// The other packages below it each have one job on the service's tables: rows (reading, writing and fencing transactions,
// and their delivered marks), leases (who may deliver what), accepted (queues that operators have accepted) and retention.
// Local transactions are run by localtx.
package postgres
