package redelivery

import (
	"math"
	"time"
)

// Close closes the Consumer. It settles nothing and loses nothing: the broker redelivers unacknowledged messages. When Close
// returns, the Consumer's goroutines have ended, but for two kinds: those that wait for pulsar-client-go to make a producer of
// the retry or dead letter topic, and those that are in a callback, for instance one that calls Close. A second call waits until
// the Consumer is closed. While an interceptor runs, it waits for a second at most, since the interceptor may be the caller.
func (c *Consumer) Close() {
	if !c.life.closing.CompareAndSwap(false, true) {
		var patience <-chan time.Time
		if c.hooks.telling.Load() > 0 { // it may be called by an interceptor that Close waits for
			patience = time.After(time.Second)
		}
		select {
		case <-c.life.closed:
		case <-patience:
		}
		return
	}
	c.calls.Shut() // what upstream is asked for after it has closed can hang
	c.crew.Shut()
	c.life.end()
	c.ledger.Close()
	c.intake.Close()
	c.publisher.close()
	// Not for a broker that does not answer: what waits for it is in line before the Close, which ends it. Half a second
	// is many round trips, and little of the two that Close may take.
	c.calls.Wait(500 * time.Millisecond)
	c.hooks.flush()
	c.inner.Close()
	c.crew.Wait(math.MaxInt64)
	close(c.life.closed)
	if c.observed.Closed != nil {
		c.observed.Closed(c)
	}
}

// call calls the inner consumer, unless it is being closed.
func (c *Consumer) call(f func() error) error {
	if !c.calls.Enter() {
		return ErrClosed
	}
	defer c.calls.Leave()
	return f()
}
