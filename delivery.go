package redelivery

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Delivery is what a Consumer knows of a message that the application has.
type Delivery struct {
	RedeliveryCount uint32        // how often it was delivered before, as the policies see it
	Last            bool          // no delivery is left: a nack makes it a dead letter
	NackDelay       time.Duration // what Nack would wait
	AckDeadline     time.Time     // when its ack timeout is over; zero if none runs
}

// Delivery returns what the Consumer knows about msg, even if msg is no longer current. For a message that it does not know,
// the count is the broker's. If the application wrapped the message and the wrapper's count is larger, that one counts. It
// returns ErrClosed once the Consumer is closed or gave up reconnecting, and an error for a nil message.
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
