package redelivery

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/intake"
)

// inner is the inner consumer. GiveBack closes it, and whoever receives next has another one subscribed in its place.
type inner struct {
	again func() (pulsar.Consumer, error) // nil if that cannot be

	main          func() (pulsar.Consumer, error) // subscribes to the main topic without the retry topic; nil if that cannot be
	hasRetryTopic bool                            // beside the main topics

	now   atomic.Pointer[pulsar.Consumer]
	mu    sync.Mutex   // held while it is replaced
	away  bool         // it was closed; for whoever has the turn
	back  <-chan error // has one when an attempt to subscribe again has ended; nil if there is none; likewise
	tries uint32       // such attempts in vain; likewise

	deleted bool // the subscription was; for whoever has the turn

	closing atomic.Bool // by GiveBack
}

// current returns the inner consumer; after GiveBack it is closed.
func (c *Consumer) current() pulsar.Consumer { return *c.inner.now.Load() }

// GiveBack returns every unsettled message to the broker: those that were prefetched, those that wait for redelivery, and those that the
// application has. The broker sends them to other consumers of the subscription at once, and does not count that as a redelivery. To do
// so, GiveBack closes the consumer at the broker. The next Receive, or the goroutine behind Chan, subscribes again; a paused Consumer
// does so after Resume. From the moment that GiveBack closes the consumer until then this Consumer takes no messages, and settling one returns
// an error. Subscribing again takes up to the client's OperationTimeout; a context that is done, and Close, do not wait for that.
//
// Call it when the application has no messages: those that it has may be handled twice. GiveBack waits half a second at most for messages
// that are being published to the retry or dead letter topic; those that have no answer by then may come twice. The Consumer remembers the
// delays and counts of waiting messages, in case they come here again. GiveBack needs Subscribe or SubscribeWith, a durable Shared or
// Key_Shared subscription, which Unsubscribe has not deleted, and a receiver queue; otherwise it returns an error that satisfies errors.Is
// with errors.ErrUnsupported. It returns ErrClosed after Close.
func (c *Consumer) GiveBack() error {
	if c.inner.again == nil || c.hooks.redeliversAll {
		return fmt.Errorf("redelivery: GiveBack: %w: want Subscribe, a durable Shared or Key_Shared subscription, and a queue", errors.ErrUnsupported)
	}
	if err := c.intake.Interrupt(); err != nil {
		return ErrClosed
	}
	defer c.intake.Release()
	if c.inner.back != nil { // it may subscribe at any time
		if _ = c.resubscribe(c.life.ended); c.life.ended.Err() != nil {
			return ErrClosed
		}
	}
	switch {
	case c.inner.deleted:
		return fmt.Errorf("redelivery: GiveBack: %w: the subscription was deleted", errors.ErrUnsupported)
	case c.inner.away:
		return nil
	}
	c.leave()
	return nil
}

// leave closes the inner consumer, for whoever has the turn.
func (c *Consumer) leave() {
	c.attempts.flush() // or another consumer knows of no delay
	c.hooks.flush()
	end := time.Now().Add(patience) // as Close
	waitWhile(c.isSettling, end)
	c.inner.closing.Store(true)
	defer c.inner.closing.Store(false)
	waitWhile(func() bool { return !c.calls.IsQuiet() }, end) // for those that came meanwhile
	c.hooks.leaves(true)
	c.inner.away = true
	closeInner(c.current())
	c.intake.Forget()
	c.hooks.leaves(false)
	c.ledger.GaveBack()
	c.emptyOutlet()
}

// waitWhile waits as long as busy says so, until end at most.
func waitWhile(busy func() bool, end time.Time) {
	for busy() && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
	}
}

// isSettling reports whether messages are being settled, by the application or by what is published elsewhere. These steps follow one another.
func (c *Consumer) isSettling() bool {
	return c.callbacks.isBusy() || c.publisher.dead.isBusy() || c.publisher.moves.isBusy() || !c.calls.IsQuiet()
}

// comeBack subscribes again after GiveBack, for whoever has the turn. If that fails it waits for a while.
func (c *Consumer) comeBack(ctx context.Context) error {
	err := c.resubscribe(ctx)
	if err == nil || errors.Is(err, intake.ErrClosed) || errors.Is(err, ctx.Err()) {
		return err
	}
	c.tell(func() { c.fail("receive", "subscribing again", err) })
	timer := time.NewTimer(backoff.Exponential{Min: time.Second, Max: 30 * time.Second}.Next(c.inner.tries))
	defer timer.Stop()
	c.inner.tries++
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.life.ended.Done():
		return intake.ErrClosed
	}
}

// resubscribe subscribes again, for whoever has the turn. It may take as long as the client's OperationTimeout, which ctx does not end:
// then the next caller has what comes of it, and after Close nobody.
func (c *Consumer) resubscribe(ctx context.Context) error {
	if c.inner.back == nil {
		c.inner.back = aside(func() error {
			consumer, err := c.inner.again()
			if err == nil && !c.replace(consumer) {
				closeInner(consumer)
				err = intake.ErrClosed
			}
			return err
		})
	}
	select {
	case err := <-c.inner.back:
		c.inner.back = nil
		if err == nil {
			c.intake.Replace(c.current(), chanOf(c.current()))
			c.inner.away, c.inner.tries = false, 0
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.life.ended.Done():
		return intake.ErrClosed
	}
}

// replace sets the inner consumer, unless the Consumer was closed meanwhile.
func (c *Consumer) replace(consumer pulsar.Consumer) bool {
	c.inner.mu.Lock()
	defer c.inner.mu.Unlock()
	if c.life.ended.Err() != nil {
		return false
	}
	c.inner.now.Store(&consumer)
	return true
}
