package worker_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// Errors that decide how a call of the handler ends, in addition to those of the package.
var (
	errPanics = errors.New("panic")
	errExits  = errors.New("goexit")
	errWhole  = errors.New("the whole batch")
	errPolicy = errors.New("by a policy")
)

const policyDelay = 300 * time.Millisecond

func policyFor(_ pulsar.Message, err error) backoff.RedeliveryBackoff {
	if errors.Is(err, errPolicy) {
		return backoff.Fixed(policyDelay)
	}
	return nil
}

// fate is the plan for a message, and its history.
type fate struct {
	ends      []error // how the first calls end; later calls succeed
	slow      time.Duration
	after     time.Duration // the delay of its Snooze and of retry
	retry     error         // a RetryAfter with the delay after
	permanent error
	pause     error // a PauseFor of a quarter of after
	hangs     bool  // the next call does not return for a while
	key       string
	before    []*fate // the earlier messages of its key, in order

	calls     int
	worker    int          // the Worker that had it last
	busy      map[int]bool // the Workers whose handlers have it
	due       time.Time    // the time before which it must not come back to that Worker
	early     int          // how often it came before due, as for local retries, since it last waited
	succeeded bool
	dead      bool // the last call made it a dead letter
	mayBeDead bool // the last call may have made it a dead letter
	letters   int
	history   []string
}

func (f *fate) isOver() bool { return f.succeeded || f.letters > 0 }

func (f *fate) String() string {
	return fmt.Sprintf("%q, slow %v, key %q, succeeded %t, dead %t, letters %d:\n    %s", f.ends[:min(5, len(f.ends))], f.slow, f.key, f.succeeded,
		f.dead, f.letters, strings.Join(f.history, "\n    "))
}

func (f *fate) note(format string, args ...any) {
	f.history = append(f.history, fmt.Sprint(time.Now().Format("05.000 "), fmt.Sprintf(format, args...)))
}

func (r *randomRun) newFate() *fate {
	f := &fate{worker: -1, busy: map[int]bool{}, after: ms(r.rng.IntN(700)), slow: ms(sometimes(r.rng, 10, 100, 200, 500))}
	if r.Keys > 0 && (r.Kind == pulsar.KeyShared || r.rng.IntN(10) > 0) {
		f.key = fmt.Sprint("key", r.rng.IntN(r.Keys))
	}
	f.retry = worker.RetryAfter(f.after, errTest)
	f.permanent = oneOf(r.rng, fmt.Errorf("wrapped: %w", worker.Permanent(errTest)), worker.Permanent(redelivery.DeadLetterTo(r.elsewhere(), errTest)))
	for range r.rng.IntN(6) - 2 {
		f.ends = append(f.ends, oneOf(r.rng, errTest, errTest, fmt.Errorf("wrapped: %w", errTest), errPolicy, f.retry, f.retry, worker.Snooze(f.after),
			errPanics, errExits, errWhole))
	}
	if r.Letters() && r.rng.IntN(12) == 0 {
		f.ends = append(f.ends, f.permanent)
	}
	if r.MaxDeliveries > 0 && r.rng.IntN(12) == 0 { // it never succeeds
		f.ends = append(f.ends, slices.Repeat([]error{errTest}, 1000)...)
	}
	if r.Wide {
		r.widenFate(f)
	}
	return f
}

// end returns how the call that begins now will end.
func (f *fate) end(down bool) error {
	switch n := f.calls - 1; {
	case f.succeeded: // its acknowledgement was lost
		return nil
	case !down && n < len(f.ends):
		return f.ends[n]
	case down:
		return errTest
	}
	return nil
}

// returns ends a call of the handler: it returns end, or panics or exits for errPanics and errExits.
func returns(end error) error {
	switch {
	case errors.Is(end, errPanics):
		panic(end)
	case errors.Is(end, errExits):
		runtime.Goexit()
	}
	return end
}

// delay returns how long a message must not come back after a call. known is false if the message may be tried again at
// once, or is settled.
func (c *randomConfig) delay(f *fate, end error, count uint32) (d time.Duration, known bool) {
	switch {
	case end == nil, errors.Is(end, f.permanent):
		return 0, false
	case c.Wide && errors.Is(end, f.pause):
		return f.after / 4, true
	case worker.IsSnooze(end):
		return f.after, true
	case errors.Is(end, f.retry):
		return f.after, c.Window == 0 || f.after > c.Pause // otherwise an outage keeps it, and tries it without that delay
	case c.Window > 0: // likewise
		return 0, false
	case errors.Is(end, errPolicy) && c.Policy:
		return policyDelay, true
	}
	return c.nackDelay(count), true
}
