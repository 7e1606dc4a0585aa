// Package database is PostgreSQL in memory, as far as the service's rows need it: a primary key on which transactions wait for
// each other, a lock for each line, fences, leases on the server's own clock, claims that see a snapshot, delivered marks and
// watermarks that a crash can lose, COMMITs whose answer is lost, and statements that are executed after their client has given
// up.
//
// Database is what outlives a process of the service; Store is one process's connections, with the delivered marks that it
// keeps in memory. What a process knows of its tracked rows, and what it does with that, is the service's own code (package
// producers); only the tables below it are of this package.
package database
