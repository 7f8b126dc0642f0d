//go:build race

// Package race says whether the race detector is on, for tests.
package race

// Enabled says whether the race detector is on.
const Enabled = true
