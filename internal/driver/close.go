package driver

import (
	"math"
	"time"
)

// Close closes the inner consumer and ends what the Driver started. It reports whether no other call did.
func (x *Driver) Close() bool {
	if !x.life.closing.CompareAndSwap(false, true) {
		var patience <-chan time.Time
		if x.hooks.telling.Load() > 0 { // it may be called by an interceptor that Close waits for
			patience = time.After(time.Second)
		}
		select {
		case <-x.life.closed:
		case <-patience:
		}
		return false
	}
	x.calls.Shut() // what upstream is asked for after it has closed can hang
	x.crew.Shut()
	x.life.end()
	x.ledger.Close()
	x.intake.Close()
	x.publisher.close()
	// Not for a broker that does not answer: what waits for it is in line before the Close, which ends it. Half a second
	// is many round trips, and little of the two that Close may take.
	x.calls.Wait(500 * time.Millisecond)
	x.hooks.flush()
	x.inner.Close()
	x.crew.Wait(math.MaxInt64)
	close(x.life.closed)
	return true
}

// call calls the inner consumer, unless it is being closed.
func (x *Driver) call(f func() error) error {
	if !x.calls.Enter() {
		return ErrClosed
	}
	defer x.calls.Leave()
	return f()
}
