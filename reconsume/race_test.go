//go:build race

package reconsume_test

// underRace tells that the race detector is on.
const underRace = true
