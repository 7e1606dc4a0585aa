// Package world holds what the fakes of a model share: chance that comes from a seed, the life of a process, and a trace.
// It is used inside of a testing/synctest bubble, so that time passes only while everybody waits.
package world
