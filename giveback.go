package redelivery

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// inner has the inner consumer. GiveBack closes that one, and the next Receive subscribes another one in its place.
type inner struct {
	consumer atomic.Pointer[pulsar.Consumer] // replaced under the Consumer's mu

	beingClosed atomic.Bool // consumer is being closed, and another one will replace it

	// The turn guards the fields below. Both functions are nil if the options do not allow a call, or if the
	// subscription was deleted: the call would create it again.
	subscribeAgain func() (pulsar.Consumer, error) // subscribes another inner consumer
	subscribeMain  func() (pulsar.Consumer, error) // subscribes to the main topic without the retry topic
	isDetached     bool                            // consumer was closed, and is not replaced yet
	subscribing    <-chan error                    // gets the outcome of an attempt; nil if none is under way
	failedTries    uint32                          // failed attempts to subscribe again
	nextTry        time.Time                       // when the pause after a failed attempt ends
}

// GiveBack returns every unsettled message to the broker: those that were prefetched, those that wait for redelivery,
// and those that the application has. The broker sends them to other consumers of the subscription at once, and does
// not count this as a redelivery. To return the messages, GiveBack closes the consumer at the broker. The next Receive,
// or the goroutine behind Chan, subscribes again; a paused Consumer does so after Resume. Until it is subscribed again,
// this Consumer takes no messages, and settling a message returns an error. Subscribing again takes up to the client's
// OperationTimeout; Close does not wait for it, and Receive returns when its context is done.
//
// Call GiveBack when the application has no messages: messages that it has may be handled twice. GiveBack waits half a
// second at most for messages that are being published to the retry or dead letter topic; a message whose publication
// the broker has not confirmed by then may come twice. The Consumer remembers the delays and counts of waiting
// messages, in case the broker sends it these messages again. GiveBack needs Subscribe or SubscribeWith, a durable
// Shared or Key_Shared subscription that Unsubscribe has not deleted, and a receiver queue; otherwise it returns an
// error that satisfies errors.Is with errors.ErrUnsupported. It returns ErrClosed after Close.
func (c *Consumer) GiveBack() error {
	if err := c.interrupt(); err != nil {
		return err
	}
	defer c.turn.give()
	if c.inner.subscribeAgain == nil || !c.settings.isShared() {
		return fmt.Errorf("redelivery: GiveBack: %w: want Subscribe, a durable Shared or Key_Shared subscription that "+
			"Unsubscribe has not deleted, and a queue", errors.ErrUnsupported)
	}
	return c.detach()
}

// detach closes the inner consumer, so that the broker gets all messages back. The caller has the turn.
func (c *Consumer) detach() error {
	if c.inner.subscribing != nil { // an attempt to subscribe is under way
		_ = c.resubscribe(c.ended)
		if c.isOver() {
			return ErrClosed
		}
	}
	if c.inner.isDetached {
		return nil
	}
	c.flushLog() // otherwise the consumer that gets the messages would not know their delays
	c.hooks.Flush()
	end := time.Now().Add(patience) // as long as Close waits
	waitWhile(func() bool { return c.letters.isBusy() || c.acksAgain.isBusy() || !c.calls.isQuiet() }, end)
	c.inner.beingClosed.Store(true)
	defer c.inner.beingClosed.Store(false)
	waitWhile(func() bool { return !c.calls.isQuiet() }, end) // for calls that began before beingClosed was set
	c.inner.isDetached = true
	upstream.Close(c.current())
	c.hooks.Forget()
	c.acksAgain.clear()
	c.reader.Forget()
	now := c.lock()
	c.loss.any.Store(true)
	c.group.GiveBack(now)
	c.unlockAndAct(now)
	c.emptyChannel()
	return nil
}

// waitWhile waits while busy returns true, until end at most.
func waitWhile(busy func() bool, end time.Time) {
	for busy() && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
	}
}

// resubscribeOrPause subscribes again after GiveBack. After a failed attempt it first waits for a while, unless another
// call wants the turn. The caller has the turn.
func (c *Consumer) resubscribeOrPause(ctx context.Context) error {
	timer := time.NewTimer(time.Until(c.inner.nextTry))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ended.Done():
		return ErrClosed
	}
	if !c.pause.isOver() {
		return nil
	}
	err := c.resubscribe(ctx)
	if err == nil || errors.Is(err, ErrClosed) || errors.Is(err, ctx.Err()) {
		return err
	}
	// queued, since the logger may call a method that takes the turn
	c.observerCalls.add(c, func() { c.reportFailure("receive", "subscribing again", err) })
	pause := backoff.Exponential{Min: time.Second, Max: 30 * time.Second}.Next(c.inner.failedTries)
	c.inner.failedTries, c.inner.nextTry = c.inner.failedTries+1, time.Now().Add(pause)
	return nil
}

// resubscribe subscribes again. The caller has the turn. An attempt may take as long as the client's OperationTimeout.
// If ctx ends first, resubscribe returns and the attempt continues. The next call gets the outcome.
func (c *Consumer) resubscribe(ctx context.Context) error {
	if c.inner.subscribing == nil {
		outcome := make(chan error, 1)
		c.inner.subscribing = outcome
		now := c.lock()
		c.group.Lost(now) // before the broker sends anything
		c.unlockAndAct(now)
		c.openTopics.Store(c.settings.countTopics())
		go func() {
			consumer, err := c.inner.subscribeAgain()
			if err == nil && !c.replace(consumer) {
				upstream.Close(consumer)
				err = ErrClosed
			}
			outcome <- err
		}()
	}
	select {
	case err := <-c.inner.subscribing:
		c.inner.subscribing = nil
		if err != nil {
			return err
		}
		c.newReader(c.current())
		c.inner.isDetached, c.inner.failedTries, c.inner.nextTry = false, 0, time.Time{}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ended.Done():
		return ErrClosed
	}
}

// replace sets the inner consumer. It returns false if the Consumer is over.
func (c *Consumer) replace(consumer pulsar.Consumer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isOver() {
		return false
	}
	c.inner.consumer.Store(&consumer)
	return true
}
