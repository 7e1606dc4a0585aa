// Package leases decides who may deliver a committed row. A claim takes leases on rows that are due; a lease is the
// exclusive right to deliver one row, until a time on the database's clock. The package also knows which processes work on
// this database, and so which half messages are its own.
package leases
