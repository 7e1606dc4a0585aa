//go:build !race

package model

// schedules are explored by default; see make model for many more.
const schedules = 4000
