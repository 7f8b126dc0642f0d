package redelivery

import (
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/delivery"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// Nack tells that the application failed on a message: it comes back when the nack policy's delay for its redelivery count
// is over (PIP-106). A second nack changes nothing, nor does one of an earlier delivery; until the message is back it may
// still be acknowledged. A nil or foreign message is logged and counted in Stats.
func (c *Consumer) Nack(msg pulsar.Message) {
	if err := c.nackMessage(msg, nil); err != nil {
		c.fail("nack", err)
	}
}

// NackID is Nack by message id. Unlike upstream's it goes by the policy too. An id that this Consumer did not hand out, or
// settled, counts as one of a message that was not redelivered yet.
func (c *Consumer) NackID(id pulsar.MessageID) {
	if err := c.nackID(id, nil, nil); err != nil {
		c.fail("nack", err)
	}
}

// NackWithDelay is Nack with a delay in place of the policy's, for this time. A negative delay counts as 0. It returns an
// error for a nil or foreign message.
func (c *Consumer) NackWithDelay(msg pulsar.Message, delay time.Duration) error {
	return c.nackMessage(msg, &delay)
}

func (c *Consumer) nackMessage(msg pulsar.Message, delay *time.Duration) error {
	id, err := idOf(msg)
	if err != nil {
		return err
	}
	return c.nackID(id, msg, delay)
}

// nackID nacks a message, which is nil if there is no more than its id.
func (c *Consumer) nackID(id pulsar.MessageID, msg pulsar.Message, delay *time.Duration) error {
	if err := checkID(id); err != nil {
		return err
	}
	count, topic := uint32(0), ""
	if msg != nil {
		count, topic = msg.RedeliveryCount(), msg.Topic()
	}
	c.mu.Lock()
	known := c.table.Knows(id, topic, time.Now())
	if !known && isPulsarID(id) {
		c.table.Adopt(id, topic, c.inner, count)
		known = true
	}
	c.mu.Unlock()
	if !known {
		return foreign(id)
	}
	c.nack(id, msg, delay)
	return nil
}

// nack starts the delay of a message that the table knows: the policy's, if delay is nil.
func (c *Consumer) nack(id pulsar.MessageID, msg pulsar.Message, delay *time.Duration) {
	if delay == nil {
		d, ok := c.delay(c.settings.nackBackoff, id)
		if !ok {
			return // settled
		}
		delay = &d
	}
	d := max(0, *delay)
	now := time.Now()
	c.mu.Lock()
	if c.ended.Err() != nil {
		c.mu.Unlock()
		return
	}
	ref, a, ok := c.table.Nack(id, d, now)
	if ok {
		c.untrack(ref, true)
		c.nacks.TrackFor(ref, a.Again)
		if msg != nil && c.settings.retryFrom > 0 && d >= c.settings.retryFrom {
			count, _ := c.table.Count(id)
			c.start(&c.moves, func() { c.moveToRetryTopic(msg, count, now.Add(d)) })
		}
	}
	if a.Ask != nil {
		c.lastAsk = now
	}
	c.mu.Unlock()
	if a.Ask != nil {
		a.Ask.NackID(a.ID)
	}
}

// InProgress tells that the application is still at work on a message: its ack timeout starts anew, as long as it was.
// Without WithAckTimeout it does nothing. It returns ErrNotHeld if the message is no longer the application's, and an
// error for a nil message.
func (c *Consumer) InProgress(msg pulsar.Message) error {
	id, err := idOf(msg)
	if err != nil {
		return err
	}
	if c.timeouts == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ref, awaited, ok := c.table.Has(id)
	if !ok || !c.timeouts.Touch(ref) && awaited { // what is not awaited yet is about to be
		return fmt.Errorf("%w: %v", ErrNotHeld, id)
	}
	return nil
}

// await starts the ack timeout of a message that the application has now, unless it settled it already.
func (c *Consumer) await(id pulsar.MessageID) {
	d, ok := c.delay(c.settings.ackTimeout, id)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ref, ok := c.table.Await(id); ok {
		c.timeouts.TrackFor(ref, d)
	}
}

// delay returns what policy says about an unsettled message; ok is false if there is none. A policy is the caller's code:
// it is not called under a lock, and its panic does not end a program in a goroutine that nobody can recover.
func (c *Consumer) delay(policy backoff.RedeliveryBackoff, id pulsar.MessageID) (d time.Duration, ok bool) {
	count, ok := c.count(id)
	if !ok {
		return 0, false
	}
	defer func() {
		if r := recover(); r != nil {
			c.fail("policy", fmt.Errorf("panic at redelivery count %d: %v", count, r), "delay", nack.DefaultDelay)
			d = nack.DefaultDelay
		}
	}()
	return policy.Next(count), true
}

// due acts for messages whose delay or ack timeout is over, or whose request was not answered in time.
func (c *Consumer) due(refs []delivery.Ref) {
	var asks []delivery.Action
	now := time.Now()
	c.mu.Lock()
	for _, ref := range refs {
		if c.nacks.Tracks(ref) || c.timeouts != nil && c.timeouts.Tracks(ref) {
			continue // it moved on since the call was made
		}
		a := c.table.Due(ref, now)
		if a.Again > 0 {
			c.nacks.TrackFor(ref, a.Again)
		}
		if a.Ask != nil {
			asks = append(asks, a)
			c.lastAsk = now
		}
	}
	wake := c.table.HasNext()
	c.mu.Unlock()
	for _, a := range asks {
		a.Ask.NackID(a.ID)
	}
	if wake {
		c.nudge()
	}
}
