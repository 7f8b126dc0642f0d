// Package outages says when failures are an outage, and how it is tried. The Worker goes by it, and so does the simulation of one.
package outages

import (
	"math"
	"time"
)

const (
	// FreeProbes is how often a message may fail as a probe before a failure counts as an attempt, so that messages that always fail make room.
	FreeProbes = 2
	// Most is how many messages an outage has looked at and keeps, where they cannot be given back.
	Most = 1000
	// ShortPause is how long a pause may be without giving back what is kept: that takes some calls of the broker.
	ShortPause = time.Second

	firstHarder = 2 // harder in an outage that does not follow another
)

// Next is which of the messages that wait to be tried is next: one that did not fail before, since that tells an outage from messages that
// always fail, the last one that came; or else the one that was tried least. tries says how often each was, or -1 for one that did not fail
// before. It is -1 if there are none.
func Next[T any](waiting []T, tries func(T) int) (place int) {
	place, fewest := -1, 0
	for i, t := range waiting {
		if n := tries(t); place < 0 || n < fewest || n < 0 {
			place, fewest = i, n
		}
	}
	return place
}

// Row counts failures as they come one after another. A success says that what handlers need is there, however many others fail.
type Row struct {
	window int // of messages, which an outage takes at least
	need   int // failures in a row that are an outage
	seen   int
	failed int  // in a row
	passed int  // likewise
	harder uint // how often need is doubled
}

// NewRow takes what WithPauseOnFailure is given.
func NewRow(window int, ratio float64) Row {
	return Row{window: window, need: max(1, int(math.Ceil(ratio*float64(window)-1e-9)))}
}

// Note adds a message, and reports whether an outage begins. The next one takes more, until a window of messages pass: one that ended and
// begins again may be none, but some messages among others.
func (r *Row) Note(failed bool) (begins bool) {
	r.seen++
	if !failed {
		r.failed = 0
		if r.passed++; r.passed>>r.harder >= r.window {
			r.harder = 0
		}
		return false
	}
	r.passed = 0
	r.failed++
	if r.seen < r.window || r.failed>>r.harder < r.need {
		return false
	}
	r.seen, r.failed, r.harder = 0, 0, min(r.harder+firstHarder, 20)
	return true
}

// Looks is how many messages that did not fail before are looked at to try the last of them: more each time, since messages that always fail
// come in bunches, and more from the beginning in an outage soon after another.
func (r *Row) Looks(tries uint32) int {
	return min(Most, 1<<min(2*uint(tries)+2*(r.harder-firstHarder), 10))
}
