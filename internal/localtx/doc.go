// Package localtx is the PostgreSQL side: it runs local transactions together with their row, keeps rows, fences and
// leases, and answers queries. It imports only txn, pgurl, and its own sqltext.
//
// A local transaction whose statements are known beforehand goes to the server in one round trip: BEGIN, the row, the
// business statements, COMMIT. A Go handler that talks to the database takes as many as it needs. Either way the row
// comes first, so that its primary key lets attempts with one id, and the fence of a check-back, wait for each other.
package localtx
