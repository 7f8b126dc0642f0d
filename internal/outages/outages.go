// Package outages decides when failures are an outage, and how an outage is probed. A Worker and the simulation of a
// Worker use it.
package outages

import (
	"math"
	"time"
)

const (
	// FreeProbes is how often a message may fail as a probe before its failures count as attempts. Once they count, a
	// message that always fails becomes a dead letter, so that others can be tried.
	FreeProbes = 2
	// Most is the largest number of messages that a Worker takes in an outage before it tries one, or keeps if they
	// cannot be given back to the broker.
	Most = 1000
	// ShortPause is the shortest pause in which messages are given back: that takes several calls to the broker.
	ShortPause = time.Second

	doublingsPerOutage = 2  // added to row.doublings by each outage
	maxDoublings       = 20 // limit of row.doublings
)

// State says whether there is an outage. The names are those of a circuit breaker.
type State uint8

// The states. Transitions of an Outage from one to another:
//
//	         | failures in a row | Try     | a probe fails or takes long, Wait | a message succeeds
//	Closed   | Open              | –       | –                                 | –
//	Open     | –                 | Probing | Open                              | Closed
//	Probing  | –                 | –       | Open                              | Closed
const (
	Closed  State = iota // no outage: all messages are handled
	Open                 // an outage: nothing is handled until a pause is over
	Probing              // an outage: one message is tried
)

// Result is how a handler's call ended.
type Result uint8

// The results.
const (
	Succeeded Result = iota
	Failed
	Unclear // a permanent error or a snooze, which says nothing about an outage
)

// Attempt is one call of a handler. K is the type of its message.
type Attempt[K comparable] struct {
	Message K
	Result  Result
	Before  bool          // the message failed before, so that a failure may be its own fault
	Probe   bool          // the message was tried in an outage
	Asked   time.Duration // how long the failed message wants to wait; the next pause is at least as long
}

// Outage is closed, open or probing. It reads no clock and starts no goroutine: the caller reports how calls ended,
// waits for the pauses, and calls Try when it tries a message. It is not safe for concurrent use.
type Outage[K comparable] struct {
	state  State
	row    row
	tries  uint32        // probes that failed
	failed map[K]int     // messages that failed in this outage, with how often each failed as a probe
	asked  time.Duration // the wait that the last failure asked for
	pause  time.Duration // the pause before this try or the next one; 0 while it is not known
}

// New returns a closed Outage, which opens when ratio × window messages have failed in a row, but not before window
// messages were handled.
func New[K comparable](window int, ratio float64) Outage[K] {
	return Outage[K]{row: row{window: window, need: max(1, int(math.Ceil(ratio*float64(window)-1e-9)))}}
}

// State returns the state.
func (o *Outage[K]) State() State { return o.state }

// Tries returns how many probes of this outage failed.
func (o *Outage[K]) Tries() uint32 { return o.tries }

// Report notes how a call ended.
func (o *Outage[K]) Report(a Attempt[K]) {
	if o.state == Closed {
		if a.Result == Unclear || a.Result == Failed && a.Before {
			return
		}
		if o.row.note(a.Result == Failed) {
			o.failed = map[K]int{a.Message: 0}
			o.open(0, a.Asked)
		}
		return
	}
	switch {
	case a.Result == Succeeded:
		o.state = Closed
	case a.Probe && a.Result == Failed:
		o.failed[a.Message]++
		o.open(o.tries+1, a.Asked)
	case a.Probe: // unclear: the probe counts, so that other messages are tried first
		o.failed[a.Message]++
		o.open(o.tries, o.asked)
	case a.Result == Failed: // a call that began before the outage
		o.failed[a.Message] += 0
	}
}

func (o *Outage[K]) open(tries uint32, asked time.Duration) {
	o.state, o.tries, o.asked, o.pause = Open, tries, asked, 0
}

// TakesLong notes that a probe has not returned for a long time, so that another message is tried at the same time.
func (o *Outage[K]) TakesLong() {
	if o.state != Closed {
		o.open(o.tries+1, o.asked)
	}
}

// Close ends an outage without a success.
func (o *Outage[K]) Close() { o.state = Closed }

// Keeps reports whether a message that has just failed is kept to be tried again, without counting an attempt.
func (o *Outage[K]) Keeps(message K) bool {
	return o.state != Closed && o.failed[message] <= FreeProbes
}

// Wait notes the pause before the next try: the policy's, or a longer one that the last failure asked for. It returns
// that pause.
func (o *Outage[K]) Wait(policy time.Duration) time.Duration {
	if o.state == Probing { // there was nothing to try
		o.state = Open
	}
	o.pause = max(policy, o.asked)
	return o.pause
}

// Pause returns the pause before the next try or, while a message is tried, the pause before this try; 0 if it is not
// known yet.
func (o *Outage[K]) Pause() time.Duration { return o.pause }

// Try notes that a message is tried now.
func (o *Outage[K]) Try() {
	if o.state == Open {
		o.state = Probing
	}
}

// Looks returns how many messages without a failure the caller takes before it tries the last of them. The number grows
// with each try, since messages that always fail come in bunches. In an outage that soon follows another one, the
// number is larger from the beginning.
func (o *Outage[K]) Looks() int {
	return min(Most, 1<<min(2*uint(o.tries)+2*(o.row.doublings-doublingsPerOutage), 10))
}

// Probes returns how often a message failed as a probe in this outage, or -1 if it did not fail at all. before says
// whether the message failed before the outage.
func (o *Outage[K]) Probes(message K, before bool) int {
	n, failed := o.failed[message]
	if !failed && !before {
		return -1
	}
	return n
}

// Next returns the place of the message to try next, or -1 if there are no messages. It chooses the last message
// without a failure: only such a message can distinguish an outage from messages that always fail. If all messages have
// failed, it chooses the first of those that were tried least. probes returns Probes of a message.
func Next[T any](waiting []T, probes func(T) int) (place int) {
	place, fewest := -1, 0
	for i, t := range waiting {
		if n := probes(t); place < 0 || n < fewest || n < 0 {
			place, fewest = i, n
		}
	}
	return place
}

// row counts failures in a row. A success ends the row: it shows that the services that handlers need are up, however
// many messages fail.
type row struct {
	window    int  // an outage needs this many messages since the previous outage
	need      int  // failures in a row that make an outage
	seen      int  // messages since the last outage
	failed    int  // failures in a row
	passed    int  // successes in a row
	doublings uint // how often need is doubled
}

// note adds a message, and reports whether an outage begins. After an outage, the next one needs four times as many
// failures in a row, since an outage so soon after another may be chance. If four windows of messages succeed in a row,
// the factor is 1 again. Each further outage multiplies both numbers by four.
func (r *row) note(failed bool) (begins bool) {
	r.seen++
	if !failed {
		r.failed = 0
		r.passed++
		if r.passed>>r.doublings >= r.window {
			r.doublings = 0
		}
		return false
	}
	r.passed = 0
	r.failed++
	if r.seen < r.window || r.failed>>r.doublings < r.need {
		return false
	}
	r.seen, r.failed, r.doublings = 0, 0, min(r.doublings+doublingsPerOutage, maxDoublings)
	return true
}
