package redelivery

import (
	"context"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
)

// channel is the channel of Chan.
type channel struct {
	messages chan pulsar.ConsumerMessage
	fed      atomic.Bool // a goroutine feeds it
}

// Chan returns a channel of messages; the Consumer field of each is this Consumer. If pulsar.ConsumerOptions had a
// MessageChannel, Chan returns it. The application has a message once it has taken the message from the channel. Unlike
// pulsar-client-go's channel, the Consumer's own channel has no buffer. The channel is never closed.
func (c *Consumer) Chan() <-chan pulsar.ConsumerMessage {
	c.startFeeder()
	return c.channel.messages
}

func (c *Consumer) startFeeder() {
	if c.channel.fed.CompareAndSwap(false, true) && c.goroutines.enter() {
		go c.feed()
	}
}

// feed sends messages on the channel until the Consumer is closed.
func (c *Consumer) feed() {
	for {
		var d partition.Delivery
		if err := c.next(c.ended, &d); err != nil {
			c.goroutines.leave()
			return
		}
		msg := wrap(&d)
		sent := c.offer(&d, msg)
		for !sent && d.Object == nil && !c.isOver() && c.pause.wait(c.ended, c.ended.Done()) == nil {
			sent = c.offer(&d, msg) // the group does not keep this message, and the broker does not send it again
		}
		if sent && !c.outside(func() { c.handedOver(&d, msg) }) {
			return
		}
	}
}

// offer is a message that Chan offers. It is withdrawn if the message is settled or forgotten before the application
// takes it.
type offer struct {
	id        partition.ID
	hand      uint64        // number of the hand-over
	withdrawn chan struct{} // closed when the offer is withdrawn; nil if the group does not track the message
	over      chan struct{} // closed when the offer has ended
}

// withdraw ends the offer if its delivery is no longer current, and reports whether it did. The caller holds the
// Consumer's mu.
func (o *offer) withdraw(g *partition.Group) bool {
	if o.withdrawn == nil {
		return false
	}
	if i, _, _ := g.Find(o.id, o.hand); i.Current {
		return false
	}
	select {
	case <-o.withdrawn:
	default:
		close(o.withdrawn)
	}
	return true
}

// offer sends a message on the channel, and reports whether the application took it. Pause ends the offer: before
// Resume the message may be settled, or become another consumer's.
func (c *Consumer) offer(d *partition.Delivery, msg pulsar.Message) (sent bool) {
	o := &offer{id: d.ID, hand: d.Hand, over: make(chan struct{})}
	if d.Object != nil {
		o.withdrawn = make(chan struct{})
	}
	c.mu.Lock()
	c.offered = o
	stale := o.withdraw(c.group)
	c.mu.Unlock()
	defer func() {
		now := c.lock()
		c.offered = nil
		close(o.over)
		switch {
		case d.Object == nil:
		case sent:
			c.group.Taken(now, *d)
		default:
			c.group.PutBack(now, *d)
		}
		c.unlockAndAct(now)
	}()
	for !stale {
		changed := c.pause.changes.wait()
		if c.pause.on.Load() {
			return false
		}
		select {
		case c.channel.messages <- pulsar.ConsumerMessage{Consumer: c, Message: msg}:
			return true
		case <-o.withdrawn:
			return false
		case <-c.ended.Done():
			return false
		case <-changed:
		}
	}
	return false
}

// awaitOffer waits until Chan's offer has ended after Pause, or until Resume. A goroutine that has begun to send the
// message when Pause is called can still send it.
func (c *Consumer) awaitOffer() {
	c.mu.Lock()
	o := c.offered
	c.mu.Unlock()
	for o != nil {
		changed := c.pause.changes.wait()
		if !c.pause.on.Load() {
			return
		}
		select {
		case <-o.over:
			return
		case <-changed:
		}
	}
}

// receiveFed takes the next message from the channel, as pulsar-client-go's Receive does.
func (c *Consumer) receiveFed(ctx context.Context) (pulsar.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !c.isOver() {
		select {
		case cm := <-c.channel.messages:
			return cm.Message, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.ended.Done():
		}
	}
	return nil, c.receiveError(ctx, ErrClosed)
}

// emptyChannel removes this Consumer's messages from a channel that the application supplied. Messages of other
// consumers, which may have the same channel, go back into it.
func (c *Consumer) emptyChannel() {
	if c.settings.opts.MessageChannel == nil {
		return
	}
	for range len(c.channel.messages) {
		select {
		case cm := <-c.channel.messages:
			if cm.Consumer != c {
				c.putBack(cm)
			}
		default:
		}
	}
}

// putBack puts a message of another consumer back into the channel. If the channel is full, a goroutine waits for room
// until that consumer is closed. putBack does not wait itself: the application may be waiting for the call that empties
// the channel.
func (c *Consumer) putBack(cm pulsar.ConsumerMessage) {
	select {
	case c.channel.messages <- cm:
		return
	default:
	}
	closed := c.ended.Done()
	if other, ok := cm.Consumer.(*Consumer); ok {
		closed = other.ended.Done()
	}
	go func() {
		select {
		case c.channel.messages <- cm:
		case <-closed:
		}
	}()
}
