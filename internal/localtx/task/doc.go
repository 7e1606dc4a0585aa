// Package task is the code of local transactions, before any is run: a kind's statements from the configuration, or a
// Planner in Go. With the input of an attempt it makes the task that localtx runs.
package task
