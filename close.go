package redelivery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// patience limits each wait of Close and GiveBack for calls under way. Close waits twice: before and after it ends
// publications. It is time enough for many round trips, and short for a program that is shutting down.
const patience = 500 * time.Millisecond

// Done returns a channel that is closed when the Consumer is closed or gives up. The Consumer gives up when
// pulsar-client-go closes the inner consumer: after MaxReconnectToBroker attempts, after an error that it does not
// retry, such as TopicNotFound, or because other code closes the client. Receive then returns pulsar-client-go's error.
// After Wrap, or with TopicsPattern, the Consumer notices the end of the inner consumer only once a Receive has taken
// all prefetched messages and waits. Any number of goroutines may wait on the channel.
func (c *Consumer) Done() <-chan struct{} { return c.ended.Done() }

// Close closes the Consumer. It settles nothing and loses nothing: the broker redelivers unacknowledged messages. It
// waits half a second at most for messages that are being published to the retry or dead letter topic; a message whose
// publication the broker has not confirmed by then may come twice. While the broker refuses connections, Close of
// pulsar-client-go takes as long as the client's OperationTimeout, and so does this one.
//
// When Close returns, the Consumer's goroutines have ended, except those that run a callback (which may call Close) or
// wait for pulsar-client-go, for instance to create a producer. A second call waits until the first has closed the
// Consumer. While an interceptor runs, neither call waits longer than a second for it, since the interceptor may be the
// caller. The inner consumer is then closed later, when the interceptor has returned.
func (c *Consumer) Close() {
	if !c.closing.CompareAndSwap(false, true) {
		c.awaitClosed(context.Background())
		return
	}
	c.shut()
	c.reportLossOfConsumer()
	if c.observer.Closed != nil {
		c.observer.Closed(c)
	}
}

// shut closes the inner consumer and ends all goroutines.
func (c *Consumer) shut() {
	defer close(c.closed)
	c.calls.shut()
	c.goroutines.shut()
	c.end()
	c.mu.Lock() // from now on setAlarm does nothing
	c.alarm.Stop()
	c.mu.Unlock()
	c.calls.wait(patience) // otherwise a message being published would not be acknowledged, and would come twice
	c.endPublishing()
	c.settings.closePublisher()
	c.calls.wait(patience)
	c.hooks.Flush()
	c.mu.Lock()
	inner := c.current()
	c.mu.Unlock()
	c.closeInner(inner)
	c.closeLog() // after the acknowledgements, which have reached the broker by now
	c.goroutines.wait(0)
	c.mu.Lock()
	c.group.Forget()
	c.mu.Unlock()
}

// closeInner closes the inner consumer. pulsar-client-go's Close waits for the interceptors.
func (c *Consumer) closeInner(inner pulsar.Consumer) {
	closed := make(chan struct{})
	go func() {
		upstream.Close(inner)
		close(closed)
	}()
	c.awaitWithInterceptors(context.Background(), closed)
}

// awaitClosed waits until another call of Close has ended, or until ctx is done. The other call may be waiting for an
// interceptor.
func (c *Consumer) awaitClosed(ctx context.Context) { c.awaitWithInterceptors(ctx, c.closed) }

// awaitWithInterceptors waits for done, which may have to wait for interceptors, or until ctx is done. It returns after
// a second in which interceptors were running, since the caller may be one of them, or one may wait for the caller.
func (c *Consumer) awaitWithInterceptors(ctx context.Context, done <-chan struct{}) {
	tick := time.NewTicker(time.Second / 10)
	defer tick.Stop()
	for ticks := 0; ticks < 10; {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if c.hooks.InterceptorRuns() {
			ticks++
		} else {
			ticks = 0
		}
	}
}

// isOver reports whether the Consumer was closed or gave up.
func (c *Consumer) isOver() bool { return c.ended.Err() != nil }

// childClosed handles the end of a topic's consumer. The Consumer ends with the last topic.
func (c *Consumer) childClosed(child pulsar.Consumer, err error) {
	if c.inner.beingClosed.Load() || c.isOver() {
		return
	}
	c.mustPoll.Store(true)
	c.wakeUp() // so that a goroutine that waits in await begins to poll
	if topic := upstream.TopicOf(child); err != nil && topic != "" {
		err = fmt.Errorf("%s: %w", topic, err)
	}
	now := c.lock()
	c.group.Leave(child)
	switch {
	case c.settings.TopicsPattern != "" && err != nil && strings.Contains(err.Error(), "TopicNotFound"):
		// the topic was deleted
	case c.openTopics.Add(-1) == 0:
		go c.innerClosed(err)
	case err != nil: // under the lock: otherwise the last topic could end the Consumer before this failure is reported
		c.observerCalls.add(c, func() { c.reportFailure("receive", "staying connected to one of the topics", err) })
	}
	c.unlockInside(now)
}

// innerClosed ends the Consumer after its inner consumer has closed itself, or when the client is closed. err is
// nil if other code closed the inner consumer or its client.
func (c *Consumer) innerClosed(err error) {
	if !c.goroutines.enter() {
		return
	}
	waitWhile(c.observerCalls.isBusy, time.Now().Add(patience)) // observers first get the failures of the other topics
	c.end()
	c.mu.Lock() // from now on c.replace (giveback.go) sets no other consumer, since the Consumer is over
	inner := c.inner.consumer.Load()
	c.mu.Unlock()
	if inner != nil { // else begin (consumer.go) closes the inner consumer
		c.closeInner(*inner)
	}
	c.goroutines.leave()
	if err != nil {
		err = fmt.Errorf("%w", err) // so that %+v does not print the stack that upstream's error has
		c.logFailed("staying connected", err)
		if c.observer.Failed != nil {
			c.observer.Failed(Failed{c, c.settings.Subscription, "receive", err})
		}
	}
}

// receiveFailed handles an error from Receive of a zero-queue inner consumer.
func (c *Consumer) receiveFailed(err error) {
	if errors.Is(err, upstream.ErrUndecryptable) {
		c.reportFailure("receive", "receiving", err)
	} else {
		c.end()
	}
	c.wakeUp()
}

// enter begins a call of the inner consumer. It returns an error after Close, and while GiveBack closes the inner
// consumer: pulsar-client-go may never answer an acknowledgement that comes during its Close. After nil, calls.leave
// must follow.
func (c *Consumer) enter() error {
	if !c.calls.enter() {
		return ErrClosed
	}
	if c.inner.beingClosed.Load() {
		c.calls.leave()
		return errGivingBack
	}
	return nil
}

var errGivingBack = fmt.Errorf("%w: the messages are being given back", ErrNotInFlight)

// call calls f, which calls the inner consumer, unless enter returns an error.
func (c *Consumer) call(f func() error) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.calls.leave()
	return f()
}

// callUntilEnded does what call does, but does not wait long for f once the Consumer is closed or gives up.
func (c *Consumer) callUntilEnded(f func() error) error {
	return c.untilEnded(func() error { return c.call(f) })
}

// untilEnded calls f, but does not wait long for it once the Consumer is closed or gives up: pulsar-client-go waits
// forever for an answer if its consumer was closed during the call or, with several topics, before the call.
func (c *Consumer) untilEnded(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-c.ended.Done():
	}
	select {
	case err := <-done:
		return err
	case <-c.closed:
	case <-time.After(patience):
	}
	return ErrClosed
}
