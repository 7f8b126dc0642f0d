package redelivery

import (
	"context"
	"errors"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// Receive returns the next message: one that is due for redelivery, or the next one of the subscription. It blocks
// until there is one. It returns an error when ctx is done or the Consumer is closed. After Chan, or with
// MessageChannel in pulsar.ConsumerOptions, it takes the message from that channel.
func (c *Consumer) Receive(ctx context.Context) (pulsar.Message, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	if c.channel.fed.Load() {
		return c.receiveFed(ctx)
	}
	var d partition.Delivery
	if err := c.next(ctx, &d); err != nil {
		return nil, c.receiveError(ctx, err)
	}
	msg := wrap(&d)
	c.handedOver(&d, msg)
	return msg, nil
}

// handedOver starts the ack timeout of a message that the application has just got, and notifies observers.
func (c *Consumer) handedOver(d *partition.Delivery, msg pulsar.Message) {
	if d.Count > 0 && d.Cause != partition.NoCause {
		c.redelivered.Add(1)
		if !d.FromMemory && d.Due > 0 && c.now()-d.Due > time.Second {
			c.late.Add(1)
		}
	}
	if policy := c.settings.ackTimeout; policy != nil && d.Object != nil {
		timeout := policy.Next(d.Count)
		now := c.lock()
		c.group.StartTimeout(now, d.ID, d.Hand, timeout)
		c.unlockAndAct(now)
	}
	if c.observer.Delivered != nil {
		c.observer.Delivered(c.deliveredEvent(d, msg))
	}
}

// next waits for the next message for the application, and describes it in d. If it returns nil, d.Body is set.
func (c *Consumer) next(ctx context.Context, d *partition.Delivery) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		if err := c.pause.wait(ctx, c.ended.Done()); err != nil {
			return err
		}
		if err := c.turn.take(ctx, c.ended.Done()); err != nil {
			return err
		}
		ok, err := c.read(ctx, d)
		c.turn.give()
		if ok || err != nil {
			return err
		}
	}
}

// read does what next does, for a caller that has the turn. It returns false and no error if another call wants the
// turn, or after Pause.
func (c *Consumer) read(ctx context.Context, d *partition.Delivery) (ok bool, err error) {
	for {
		switch {
		case c.isOver():
			return false, ErrClosed
		case !c.pause.isOver():
			return false, nil
		case c.inner.isDetached:
			return false, c.resubscribeOrPause(ctx)
		}
		if ok = c.take(d); !ok {
			cm, has := c.reader.Next()
			if !has {
				if err := c.wait(ctx); err != nil {
					return false, err
				}
				continue
			}
			ok = c.arrive(&cm, d)
		}
		if ok && c.isStillDue(d) && !c.refuses(d) {
			return true, nil
		}
	}
}

// take takes the next due message from the group, if there is one.
func (c *Consumer) take(d *partition.Delivery) (ok bool) {
	if !c.isReady.Load() {
		return false
	}
	now := c.lock()
	ok = c.group.Take(now, c.reader.Has(), d)
	c.unlockAndAct(now)
	return ok
}

// arrive passes a message from upstream to the group. ok reports whether the message goes to the application.
func (c *Consumer) arrive(cm *pulsar.ConsumerMessage, d *partition.Delivery) (ok bool) {
	if !isTracked(cm.Message) {
		*d = partition.Delivery{Source: cm.Consumer, Body: cm.Message, Count: cm.RedeliveryCount()}
		return true
	}
	c.messages.Note(cm.Message)
	var cp partition.Copy
	c.describe(cm, &cp)
	now := c.lock()
	if c.isOver() { // Close may have emptied the group already
		c.unlock()
		return false
	}
	verdict, again := c.group.Arrive(now, &cp, d)
	c.unlockAndAct(now)
	if c.blocked.on.Load() {
		c.blocked.on.Store(false)
	}
	switch verdict {
	case partition.Deliver:
		d.Body = cm.Message
		return true
	case partition.AckAgain:
		c.swallowed.Add(1)
		c.acksAgain.add(c, func() { _ = c.call(func() error { return c.ackAgain(again) }) })
		c.observeCopy(c.observer.Swallowed, *cm)
	case partition.Buffered:
		c.buffered.Add(1)
		c.observeCopy(c.observer.Buffered, *cm)
	case partition.Dropped:
		c.dropped.Add(1)
		c.observeCopy(c.observer.Dropped, *cm)
	}
	return false
}

// describe fills cp with the fields of a message from upstream.
func (c *Consumer) describe(cm *pulsar.ConsumerMessage, cp *partition.Copy) {
	id := cm.ID()
	cp.ID, cp.Source, cp.Object = idOf(cm.Topic(), id), cm.Consumer, id
	cp.Total, cp.Count = id.BatchSize(), cm.RedeliveryCount()
	cp.Unannounced = cm.GetEncryptionContext() != nil // upstream calls no interceptor for it
	// the body of an undecryptable message is not kept: when the message comes again, upstream may decrypt it
	if !c.isUndecryptable(cm.Message) {
		cp.Body = cm.Message
		cp.Size, cp.Buffer = upstream.Weigh(cm.Message)
	}
	if c.settings.isRetry(cm.Message) {
		counted := publishing.RedeliveryCount(cm.Message)
		cp.Count += min(counted, ^cp.Count)
		cp.Earlier = max(publishing.Attempts(cm.Message), counted) - counted
		cp.Wait = waitOf(cm.Message)
	}
	c.addRecord(cm.Message, cp)
}

// wait waits for a message from upstream, or for wakeUp.
func (c *Consumer) wait(ctx context.Context) error {
	now := c.lock()
	c.group.ReceiverWaits(now)
	c.unlockAndAct(now) // wakes await if a message has become due
	err := c.await(ctx)
	now = c.lock()
	c.group.ReceiverContinues(now)
	c.unlockAndAct(now)
	return err
}

// await does what wait does, after the group was notified. Some inner consumers show only by an error of Receive that
// they have closed themselves (mustPoll). await calls their Receive after each second without a message. A zero-queue
// consumer that reconnects is left alone, and await looks each second whether it is connected again.
func (c *Consumer) await(ctx context.Context) error {
	for {
		hasQueue, reconnects := c.reader.HasQueue(), c.hooks.Reconnecting() > 0
		var quiet <-chan time.Time
		if hasQueue && c.mustPoll.Load() || !hasQueue && reconnects {
			quiet = time.After(checkTime)
		}
		select {
		case cm, open := <-c.reader.Wait(reconnects):
			if open {
				c.reader.Put(cm)
			} else {
				c.end()
			}
			return nil
		case <-quiet:
			if !hasQueue {
				continue
			}
			msg, closed := upstream.IsClosed(c.current())
			if msg != nil {
				c.reader.Put(pulsar.ConsumerMessage{Consumer: c.current(), Message: msg})
				return nil
			}
			if closed {
				c.end()
			}
		case <-c.wake:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ended.Done():
			return ErrClosed
		}
	}
}

// isUndecryptable reports whether a message must be nacked because it could not be decrypted.
func (c *Consumer) isUndecryptable(msg pulsar.Message) bool {
	return c.settings.nacksUndecryptable && msg.GetEncryptionContext() != nil
}

// refuses reports whether a message must not go to the application. It nacks a message that cannot be decrypted, and
// gives up one that was delivered too often. The broker's count of a batch includes failures of other messages of the
// batch, so a message of a batch is given up only after this Consumer has delivered it.
func (c *Consumer) refuses(d *partition.Delivery) bool {
	msg := d.Body.(pulsar.Message)
	undecryptable, limit := c.isUndecryptable(msg), c.settings.MaxDeliveries
	tooOften := limit > 0 && d.Count >= limit && d.Object != nil &&
		(d.Again || d.Object.(pulsar.MessageID).BatchSize() <= 1)
	if !undecryptable && !tooOften {
		return false
	}
	refused := *d
	c.letters.add(c, func() {
		delay := c.nackDelay(refused.Count)
		if !undecryptable {
			c.makeDeadLetter(refused, delay, nil, false)
			return
		}
		now := c.lock()
		_, _, _ = c.group.Nack(now, partition.Failure{ID: refused.ID, Hand: refused.Hand, Delay: delay})
		c.unlockAndAct(now)
	})
	return true
}

// receiveError returns err or, for ErrClosed, the error of the inner consumer's Receive. If Close was called,
// receiveError first waits for its end: a call of Receive before that would take messages that a seek waits for, and
// would keep a zero-queue consumer from closing.
func (c *Consumer) receiveError(ctx context.Context, err error) error {
	if !errors.Is(err, ErrClosed) {
		return err
	}
	if c.closing.Load() {
		c.awaitClosed(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	for {
		if _, err := c.current().Receive(ctx); err != nil {
			return err
		}
	}
}
