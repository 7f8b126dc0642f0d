package driver

import (
	"context"
	"math"
	"time"
)

// patience is how long Close waits for calls of the inner consumer: many round trips, and little of the two seconds that Close may take.
// It does not wait for a broker that does not answer: what waits for it is in line before the Close, which ends it.
const patience = 500 * time.Millisecond

// Close closes the inner consumer and ends what the Driver started. It reports whether no other call did.
func (x *Driver) Close() bool {
	if !x.life.closing.CompareAndSwap(false, true) {
		x.awaitClosed(context.Background())
		return false
	}
	defer close(x.life.closed) // even if an interceptor panics
	x.calls.Shut()             // what upstream is asked for after it has closed can hang
	x.crew.Shut()
	x.life.end()
	x.ledger.Close()
	x.intake.Close()
	x.calls.Wait(patience) // or what is being published is not acknowledged, and comes twice
	x.life.endCut()
	x.publisher.close()
	x.calls.Wait(patience)
	x.hooks.flush()
	x.inner.Close()
	x.crew.Wait(math.MaxInt64)
	return true
}

// awaitClosed waits until another call of Close has ended. It may be called by an interceptor that Close waits for: then it waits for a
// second at most.
func (x *Driver) awaitClosed(ctx context.Context) {
	var enough <-chan time.Time
	if x.hooks.telling.Load() > 0 {
		enough = time.After(time.Second)
	}
	select {
	case <-x.life.closed:
	case <-ctx.Done():
	case <-enough:
	}
}

// call calls the inner consumer, unless it is being closed.
func (x *Driver) call(f func() error) error {
	if !x.calls.Enter() {
		return ErrClosed
	}
	defer x.calls.Leave()
	return f()
}
