package redelivery

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/delivery"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// Receive returns the next message: one that is due for redelivery or the next of the subscription. It blocks until there
// is one, ctx is done or the consumer is closed.
func (c *Consumer) Receive(ctx context.Context) (pulsar.Message, error) {
	cm, err := c.next(ctx)
	if err != nil {
		return nil, err
	}
	if c.timeouts != nil {
		c.await(cm.ID())
	}
	return cm.Message, nil
}

// Chan returns a channel of messages, with this Consumer in each. It is the MessageChannel of pulsar.ConsumerOptions, if
// there was one. The application has a message when it has taken it from the channel; unlike upstream's, the channel has
// no buffer of its own. It is never closed, as upstream's is not.
func (c *Consumer) Chan() <-chan pulsar.ConsumerMessage {
	c.feed.Do(c.startFeeder)
	return c.out
}

func (c *Consumer) startFeeder() {
	c.work.Go(func() {
		for {
			cm, err := c.next(c.ended)
			if err != nil {
				return
			}
			c.mu.Lock()
			epoch := c.epoch
			c.mu.Unlock()
			select {
			case c.out <- cm:
				if c.timeouts != nil {
					c.await(cm.ID())
				}
			case <-epoch: // a seek made the message stale
			case <-c.ended.Done():
				return
			}
		}
	})
}

// next takes the next message for the application.
func (c *Consumer) next(ctx context.Context) (pulsar.ConsumerMessage, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	select {
	case c.turn <- struct{}{}:
	default:
		select {
		case c.turn <- struct{}{}:
		case <-ctx.Done():
			return pulsar.ConsumerMessage{}, ctx.Err()
		case <-c.ended.Done():
			return pulsar.ConsumerMessage{}, c.closedErr(ctx)
		}
	}
	defer func() { <-c.turn }()
	for {
		if c.ended.Err() != nil {
			return pulsar.ConsumerMessage{}, c.closedErr(ctx)
		}
		for c.waiters.Load() > 0 { // whoever waits is about to ask for the turn
			<-c.turn
			runtime.Gosched()
			c.turn <- struct{}{}
		}
		c.mu.Lock()
		cm, ok := c.table.Next()
		c.mu.Unlock()
		if !ok {
			var err error
			if cm, ok, err = c.fetch(ctx); err != nil {
				return pulsar.ConsumerMessage{}, err
			}
			if !ok || !c.arrive(cm) {
				continue
			}
		}
		if c.nacksUndecryptable && cm.GetEncryptionContext() != nil {
			c.nack(cm.ID(), nil, nil)
			continue
		}
		if c.isDead(cm) {
			continue
		}
		cm.Consumer = c
		c.interceptors.BeforeConsume(cm)
		return cm, nil
	}
}

var errWoken = errors.New("woken")

// fetch takes the next message from the inner consumer; ok is false if there is something else to look at first. The
// caller holds turn.
func (c *Consumer) fetch(ctx context.Context) (cm pulsar.ConsumerMessage, ok bool, err error) {
	if c.messages == nil {
		return c.fetchWithoutQueue(ctx)
	}
	select {
	case cm = <-c.messages:
		return cm, true, nil
	default:
	}
	select {
	case cm = <-c.messages:
		return cm, true, nil
	case <-c.wake:
		return cm, false, nil
	case <-c.check.C:
		if c.innerCloses != nil && c.innerCloses.Load() == 0 {
			return cm, false, nil
		}
		return c.probe()
	case <-ctx.Done():
		return cm, false, ctx.Err()
	case <-c.ended.Done():
		return cm, false, nil
	}
}

// fetchWithoutQueue is fetch for a zero-queue consumer, which has no channel.
func (c *Consumer) fetchWithoutQueue(ctx context.Context) (cm pulsar.ConsumerMessage, ok bool, err error) {
	receiving, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-c.wake:
		case <-c.ended.Done():
		case <-receiving.Done():
		}
		cancel(errWoken)
	}()
	defer cancel(nil)
	msg, err := c.receiveWithoutQueue(receiving)
	switch {
	case err == nil:
		return pulsar.ConsumerMessage{Consumer: c.inner, Message: msg}, true, nil
	case errors.Is(err, errUndecryptable):
		c.fail("receiving", err)
		return cm, false, nil
	case errors.Is(context.Cause(receiving), errWoken):
		return cm, false, nil
	}
	return cm, false, err
}

var errUndecryptable = errors.New("a message cannot be decrypted: it stays at the broker until the consumer connects anew")

// receiveWithoutQueue is the zero-queue consumer's Receive, which panics on a message that it could not decrypt, and does
// not tell which one it was.
func (c *Consumer) receiveWithoutQueue(ctx context.Context) (msg pulsar.Message, err error) {
	defer func() {
		if !c.nacksUndecryptable {
			return
		}
		switch r := recover().(type) {
		case nil:
		case runtime.Error:
			err = errUndecryptable
		default:
			panic(r)
		}
	}()
	return c.inner.Receive(ctx)
}

// probe finds out whether the inner consumer has closed itself, as it does when it gives up reconnecting: its channel
// does not tell. It may find a message instead, though not of which child it is: one in chunks can then not be acknowledged
// on a consumer of several topics.
func (c *Consumer) probe() (cm pulsar.ConsumerMessage, ok bool, err error) {
	select {
	case cm = <-c.messages:
		return cm, true, nil
	default:
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	msg, err := c.inner.Receive(done)
	switch {
	case err == nil:
		return pulsar.ConsumerMessage{Consumer: c.inner, Message: msg}, true, nil
	case errors.Is(err, context.Canceled):
		return cm, false, nil
	}
	c.end()
	return cm, false, err
}

// closedErr returns the inner consumer's own error for a closed consumer, once it is closed. Until then its Receive would take
// messages from under a seek, which hangs then, and keep a zero-queue consumer from being closed.
func (c *Consumer) closedErr(ctx context.Context) error {
	c.mu.Lock()
	closing := c.closing
	c.mu.Unlock()
	if closing {
		select {
		case <-c.closed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		if _, err := c.inner.Receive(ctx); err != nil {
			return err
		}
	}
}

// arrive enters a message into the table and reports whether it goes to the application now.
func (c *Consumer) arrive(cm pulsar.ConsumerMessage) bool {
	if strings.HasPrefix(cm.Topic(), nonPersistent) {
		return true
	}
	c.mu.Lock()
	if c.closing { // the broker has it still
		c.mu.Unlock()
		return false
	}
	now := time.Now()
	verdict, ref := c.table.Arrive(cm, now)
	if verdict == delivery.Deliver && c.isRetry(cm.Message) {
		c.table.Carry(ref, reconsume.RedeliveryCount(cm.Message))
		if d := early(cm.Message, now); d > 0 {
			verdict = delivery.Hold
			c.table.Postpone(ref, cm.Message)
			c.nacks.TrackFor(ref, d)
		}
	}
	c.forget()
	warn := !c.warned && c.table.Full()
	c.warned = c.warned || warn
	switch verdict {
	case delivery.Redeliver:
		c.nacks.Untrack(ref)
	case delivery.Swallow:
		c.swallowed++
		c.start(&c.swallow, func() { c.ackAgain("a settled message again", cm.Consumer, cm.ID()) })
	}
	c.mu.Unlock()
	if warn {
		c.log(slog.LevelWarn, "many messages are unacknowledged, close to the broker's limit, where it stops sending: those that "+
			"wait for redelivery count too", "unacknowledged", delivery.NearLimit)
	}
	return verdict == delivery.Deliver || verdict == delivery.Redeliver
}

// nudge tells the holder of turn to look at the table again.
func (c *Consumer) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
