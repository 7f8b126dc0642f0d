package redelivery

import (
	"math"
	"time"
)

// Close closes the consumer. It settles nothing and loses nothing: the broker redelivers what is not acknowledged. When
// Close returns no goroutine of the Consumer is left, but for one that still waits for pulsar-client-go to make a producer of
// the retry or dead letter topic, and one that is in a callback, as where that calls Close. Calling it again waits until it is closed;
// while an interceptor runs, which may be what calls it, for a second at most.
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
