package driver

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Delivery is redelivery.Delivery.
type Delivery struct {
	RedeliveryCount uint32
	Last            bool
	NackDelay       time.Duration
	AckDeadline     time.Time
}

// Delivery returns what is known about a message.
func (x *Driver) Delivery(msg pulsar.Message) (Delivery, error) {
	n, err := x.nameOf(msg)
	if err != nil {
		return Delivery{}, err
	}
	if x.life.ended.Err() != nil {
		return Delivery{}, ErrClosed
	}
	d, _, known := x.ledger.Find(n)
	if !known || !n.HasHand {
		d.Count = max(d.Count, countOf(msg))
	}
	return Delivery{
		RedeliveryCount: d.Count,
		Last:            x.ledger.IsLast(d.Count),
		NackDelay:       max(0, x.nackDelay(d.Count)),
		AckDeadline:     x.ledger.AckDeadline(d),
	}, nil
}

// RedeliveryCount returns how often a message was delivered before.
func (x *Driver) RedeliveryCount(msg pulsar.Message) uint32 {
	n, err := x.nameOf(msg)
	if err != nil {
		x.Fail("count", "redelivery count", err)
		return 0
	}
	if d, _, known := x.ledger.Find(n); known {
		return d.Count
	}
	return countOf(msg)
}
