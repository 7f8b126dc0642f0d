package ledger

import "math/bits"

// outcomes are what became of the last messages that the application had: a bit for each, 1 if it failed.
type outcomes struct {
	last uint32
	n    int
}

const (
	seenOutcomes   = 20
	failedOutcomes = 18 // of the last ones, from which the consumer seems to be what fails rather than the messages
)

// outcome notes what became of a message. The caller holds mu.
func (l *Ledger) outcome(failed bool) {
	o := &l.outcomes
	o.last <<= 1
	if failed {
		o.last |= 1
	}
	o.n = min(o.n+1, seenOutcomes)
}

// fails reports whether nearly all of the last messages failed, so that another consumer may do better.
func (o *outcomes) fails() bool {
	return o.n == seenOutcomes && bits.OnesCount32(o.last&(1<<seenOutcomes-1)) >= failedOutcomes
}
