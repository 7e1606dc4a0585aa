//go:build race

package model

// schedules are explored by default. The race detector makes each of them several times slower.
const schedules = 500
