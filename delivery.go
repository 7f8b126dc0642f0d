package redelivery

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Delivery is what a Consumer knows about a message that the application has.
type Delivery struct {
	RedeliveryCount uint32        // how often it was delivered before; policies get this count
	Last            bool          // no delivery is left: a nack makes it a dead letter
	NackDelay       time.Duration // how long Nack would delay it
	AckDeadline     time.Time     // when its ack timeout is over; zero if no timeout runs
}

// Delivery returns what the Consumer knows about msg, even if msg is no longer its newest delivery. For a message that the
// Consumer does not know, the redelivery count is the broker's. If the application wrapped the message and the wrapper's count is
// larger, the wrapper's counts. It returns ErrClosed after the Consumer was closed or gave up reconnecting, and an error for a
// nil message.
func (c *Consumer) Delivery(msg pulsar.Message) (Delivery, error) {
	n, err := c.nameOf(msg)
	if err != nil {
		return Delivery{}, err
	}
	if c.life.ended.Err() != nil {
		return Delivery{}, ErrClosed
	}
	d, _, known := c.ledger.Find(n)
	if !known || !n.HasHand {
		d.Count = max(d.Count, msg.RedeliveryCount())
	}
	return Delivery{
		RedeliveryCount: d.Count,
		Last:            c.ledger.IsLast(d.Count),
		NackDelay:       max(0, c.delay(c.settings.nackBackoff, d.Count)),
		AckDeadline:     c.ledger.AckDeadline(d),
	}, nil
}
