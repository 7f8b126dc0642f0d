package redelivery

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// patience is how long Close waits for calls of the inner consumer: many round trips, and little of the two seconds that Close may take.
// It does not wait for a broker that does not answer: what waits for it is in line before the Close, which ends it.
const patience = 500 * time.Millisecond

// Close closes the Consumer. It settles nothing and loses nothing: the broker redelivers unacknowledged messages. It waits half a second
// at most for messages that are being published to the retry or dead letter topic; those that have no answer by then may come twice. While
// pulsar-client-go looks for a broker that refuses connections, its Close takes as long as the client's OperationTimeout, and so does this one.
//
// When Close returns, the Consumer's goroutines have ended, except one that runs a callback, such as one that calls Close, and one that
// waits for pulsar-client-go to make a producer. A second call waits until the Consumer is closed; while an interceptor runs, which may
// be the caller, it waits for a second at most.
func (c *Consumer) Close() {
	if !c.shut() {
		return
	}
	c.losses.closed.Do(c.lostAll)
	if c.observer.Closed != nil {
		c.observer.Closed(c)
	}
}

// shut closes the inner consumer and ends what newConsumer started. It reports whether no other call did.
func (c *Consumer) shut() bool {
	if !c.life.closing.CompareAndSwap(false, true) {
		c.awaitClosed(context.Background())
		return false
	}
	defer close(c.life.closed) // even if an interceptor panics
	c.calls.Shut()             // a request to a closed upstream consumer can hang
	c.goroutines.Shut()
	c.life.end()
	c.ledger.Close()
	c.intake.Close()
	c.calls.Wait(patience) // or what is being published is not acknowledged, and comes twice
	c.life.endCut()
	c.publisher.close()
	c.calls.Wait(patience)
	c.ledger.Clear()
	c.hooks.flush()
	c.inner.mu.Lock()
	inner := c.current()
	c.inner.mu.Unlock()
	closeInner(inner)
	c.attempts.close() // now that acknowledgements have surely reached the broker
	c.goroutines.Wait(math.MaxInt64)
	return true
}

// closeInner closes an inner consumer, and takes what is in its queue meanwhile: if that is full, upstream's reader of the connection waits for
// room, with the broker's answer to the Close behind it, and afterwards for good, so that nobody else has the connection.
func closeInner(consumer pulsar.Consumer) {
	messages, closed := chanOf(consumer), make(chan struct{})
	var taking sync.WaitGroup
	taking.Go(func() {
		for {
			select {
			case _, open := <-messages:
				if !open { // by another's consumer
					messages = nil
				}
			case <-closed:
				return
			}
		}
	})
	defer func() {
		close(closed)
		taking.Wait()
	}()
	consumer.Close()
}

// awaitClosed waits until another call of Close has ended. It may be called by an interceptor that Close waits for: then it waits for a
// second at most.
func (c *Consumer) awaitClosed(ctx context.Context) {
	var enough <-chan time.Time
	if c.hooks.telling.Load() > 0 {
		enough = time.After(time.Second)
	}
	select {
	case <-c.life.closed:
	case <-ctx.Done():
	case <-enough:
	}
}

// enter begins a call of the inner consumer, unless that is being closed, by Close or by GiveBack: upstream may never answer an acknowledgement
// that comes meanwhile. Without an error, calls.Leave must follow.
func (c *Consumer) enter() error {
	if !c.calls.Enter() {
		return ErrClosed
	}
	if c.inner.closing.Load() {
		c.calls.Leave()
		return errGivingBack
	}
	return nil
}

var errGivingBack = fmt.Errorf("%w: the messages are being given back", ErrNotInFlight)

// call calls the inner consumer, unless it is being closed.
func (c *Consumer) call(f func() error) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.calls.Leave()
	return f()
}

// untilClosed is call, and returns when the Consumer is closed meanwhile, or has given up: of several topics upstream calls one after the
// other, and waits for ever for those that were closed before.
func (c *Consumer) untilClosed(f func() error) error {
	done, ended := aside(func() error { return c.call(f) }), c.life.ended.Done()
	var enough <-chan time.Time
	for {
		select {
		case err := <-done:
			return err
		case <-c.life.closed:
			return ErrClosed
		case <-enough:
			return ErrClosed
		case <-ended:
			if ended = nil; !c.life.closing.Load() { // it gave up, and nobody may call Close
				enough = time.After(patience)
			}
		}
	}
}

// aside calls what may hang in a goroutine of its own.
func aside(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errExited
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("panic: %v", v)
			}
			done <- err
		}()
		err = f()
	}()
	return done
}
