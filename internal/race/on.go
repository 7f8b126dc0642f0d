//go:build race

// Package race tells tests whether the race detector is on.
package race

// Enabled tells that the race detector is on.
const Enabled = true
