package redelivery

import (
	"context"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/intake"
	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// outlet is the channel that Chan returns, and what feeds it.
type outlet struct {
	ch    chan pulsar.ConsumerMessage
	given bool        // by the application
	fed   atomic.Bool // the feeder was started
}

// emptyOutlet takes out of the buffer of the application's own channel what it has not taken. What is there of other consumers, which may
// have the same channel, goes back into it.
func (c *Consumer) emptyOutlet() {
	if !c.outlet.given {
		return
	}
	var others []pulsar.ConsumerMessage
	for n := len(c.outlet.ch); n > 0; n-- {
		select {
		case cm := <-c.outlet.ch:
			if cm.Consumer != c {
				others = append(others, cm)
			}
		default:
		}
	}
	for i, cm := range others {
		select {
		case c.outlet.ch <- cm:
		default: // the others have filled it meanwhile, and the application that is to read it may be waiting for us
			go c.putBack(others[i:])
			return
		}
	}
}

// putBack puts messages of other consumers back as soon as there is room for them, until these are closed.
func (c *Consumer) putBack(others []pulsar.ConsumerMessage) {
	for _, cm := range others {
		closed := c.life.ended.Done()
		if other, ok := cm.Consumer.(*Consumer); ok {
			closed = other.life.ended.Done()
		}
		select {
		case c.outlet.ch <- cm:
		case <-closed:
		}
	}
}

// receiveFed takes the next message from the channel, as upstream's Receive does.
func (c *Consumer) receiveFed(ctx context.Context) (pulsar.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.life.ended.Err() == nil {
		select {
		case cm := <-c.outlet.ch:
			return cm.Message, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.life.ended.Done():
		}
	}
	return nil, c.receiveError(ctx, intake.ErrClosed)
}

// Chan returns a channel of messages; the Consumer field of each is this Consumer. If pulsar.ConsumerOptions had a MessageChannel, that
// is the channel. The application has a message when it has taken it from the channel. Unlike the channel of pulsar-client-go, this one
// has no buffer of its own. Like that one, it is never closed.
func (c *Consumer) Chan() <-chan pulsar.ConsumerMessage {
	c.startFeeder()
	return c.outlet.ch
}

func (c *Consumer) startFeeder() {
	if c.outlet.fed.CompareAndSwap(false, true) && c.goroutines.Enter() {
		go c.work(c.feed)
	}
}

// feed sends the next message on the channel, and reports false once the Consumer is closed.
func (c *Consumer) feed() (more bool) {
	session := c.life.now()
	var d ledger.Delivery
	if err := c.next(c.life.ended, &d); err != nil {
		c.goroutines.Leave()
		return false
	}
	msg := messageOf(&d)
	if !c.outside(func() { c.intercept(&d, msg) }) {
		return false
	}
	told := c.deliveredEvent(&d, msg)
	return !c.offer(session, d, msg) || c.outside(func() { c.startTimeout(&d); c.delivered(told) })
}

// offer sends a message on the channel, unless it is settled or forgotten before the application takes it.
func (c *Consumer) offer(session context.Context, d ledger.Delivery, msg pulsar.Message) (sent bool) {
	var withdrawn <-chan struct{}
	if d.ID != nil {
		var ok bool
		if withdrawn, ok = c.ledger.Offer(d); !ok {
			return false
		}
		defer func() { c.ledger.Offered(d, sent) }()
	}
	for {
		paused := c.pause.next()
		if !c.pause.on.Load() { // else it began meanwhile
			select {
			case c.outlet.ch <- pulsar.ConsumerMessage{Consumer: c, Message: msg}:
				return true
			case <-withdrawn:
				return false
			case <-session.Done():
				return false
			case <-paused:
			}
		}
		if d.ID != nil || c.unpaused(session) != nil { // without an id it is known to nobody, and would be lost
			return false
		}
	}
}
