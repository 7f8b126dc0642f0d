package redelivery

import (
	"context"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Delivery is what the Consumer knows of a message that the application has.
type Delivery struct {
	RedeliveryCount uint32        // how often it was delivered before; the larger of the Consumer's count and the message's own
	Last            bool          // no delivery is left: a nack is a dead letter
	NackDelay       time.Duration // what Nack would wait
	AckDeadline     time.Time     // when its ack timeout is over; zero without one
}

// Delivery returns what the Consumer knows of msg. It returns ErrClosed once the Consumer is closed or gave up reconnecting.
func (c *Consumer) Delivery(msg pulsar.Message) (Delivery, error) {
	id, err := idOf(msg)
	if err != nil {
		return Delivery{}, err
	}
	if c.ended.Err() != nil {
		return Delivery{}, ErrClosed
	}
	count, _ := c.count(id)
	d := Delivery{RedeliveryCount: max(count, msg.RedeliveryCount())}
	d.Last = c.maxDeliveries > 0 && d.RedeliveryCount+1 >= c.maxDeliveries
	d.NackDelay = max(0, c.settings.nackBackoff.Next(d.RedeliveryCount))
	if c.settings.ackTimeout != nil {
		d.AckDeadline = time.Now().Add(c.settings.ackTimeout.Next(d.RedeliveryCount))
	}
	return d, nil
}

// NackWithReason is Nack with the reason that the dead letter has, if this was the last delivery.
func (c *Consumer) NackWithReason(msg pulsar.Message, reason error) error {
	if d, err := c.Delivery(msg); err == nil && d.Last {
		if err := c.DeadLetter(context.Background(), msg, reason); err == nil {
			return nil
		}
	}
	return c.nackMessage(msg, nil)
}
