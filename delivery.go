package redelivery

import (
	"math"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// Delivery is what a Consumer knows about a message that the application has. For a message that is settled or waits, the fields are what
// they would be if the application had it now, and AckDeadline is zero.
type Delivery struct {
	Attempt         uint32        // which attempt this is, from 1: with those before it went to the retry topic
	RedeliveryCount uint32        // how often it was delivered before; policies get this count
	Last            bool          // no delivery is left: a nack makes it a dead letter
	NackDelay       time.Duration // how long Nack would delay it
	AckDeadline     time.Time     // when its ack timeout is over; zero if no timeout runs
	FirstPublished  time.Time     // when it was published, or of a retry from the retry topic, the message that it is a retry of
	Lost            bool          // another consumer may have it, see Observer.Lost; false again once the broker has sent it again
	Begun           bool          // other messages of its batch were delivered; they come again after a restart unless this one is settled too; see Stats.Unfinished
}

// Delivery returns what the Consumer knows about msg, even if msg is no longer its newest delivery. For a message that the
// Consumer does not know, the redelivery count is the broker's. If the application wrapped the message and the wrapper's count is
// larger, that count is returned. It returns ErrClosed after the Consumer was closed or gave up reconnecting, and an error for a
// nil message.
func (c *Consumer) Delivery(msg pulsar.Message) (Delivery, error) {
	n, err := c.nameOf(msg)
	if err != nil {
		return Delivery{}, err
	}
	if c.life.ended.Err() != nil {
		return Delivery{}, ErrClosed
	}
	d, current, _ := c.ledger.Find(n)
	if d.ID == nil || !n.Own { // it is settled, or not known
		d.Count = max(d.Count, countOf(msg))
	}
	return Delivery{
		Attempt:         c.publisher.attempt(msg, d.Count),
		RedeliveryCount: d.Count,
		Last:            c.ledger.IsLast(d.Count),
		NackDelay:       max(0, c.nackDelay(d.Count)),
		AckDeadline:     c.ledger.AckDeadline(d),
		FirstPublished:  c.publisher.firstPublished(msg),
		Lost:            c.losses.any.Load() && current && d.Doubtful,
		Begun:           c.ledger.IsBegun(d),
	}, nil
}

// attempt returns the number of a delivery over all retries. A message from the retry topic had attempts before.
func (p *publisher) attempt(msg pulsar.Message, count uint32) uint32 {
	before, among := p.earlier(msg)
	return uint32(min(uint64(before)+uint64(count-min(count, among))+1, math.MaxUint32))
}

// earlier returns the attempts of a message before it was published to the retry topic, and how many of its redelivery count are among
// them. Like firstPublished it takes a message of the application's own, whose methods may panic, for none of the retry topic.
func (p *publisher) earlier(msg pulsar.Message) (attempts, among uint32) {
	defer func() { _ = recover() }()
	if !p.isRetry(msg) {
		return 0, 0
	}
	return publishing.Attempts(msg), publishing.RedeliveryCount(msg)
}

// RedeliveryCount returns how often msg was delivered before. Policies get this count. While msg is not settled, it is the larger of the
// broker's count and the Consumer's own, so it also grows where the broker's count stays 0 (Exclusive, Failover) or is reset. The broker
// counts a batch as a whole; for the messages of a batch the Consumer uses its own count from the second delivery on. A retry of the
// ReconsumeLater methods is a new message, whose count begins at 0. A message that a nack moved to the retry topic (WithNackRetryTopic)
// keeps its count.
func (c *Consumer) RedeliveryCount(msg pulsar.Message) uint32 {
	n, err := c.nameOf(msg)
	if err != nil {
		c.fail("count", "reading a redelivery count", err)
		return 0
	}
	if d, _, _ := c.ledger.Find(n); d.ID != nil {
		return d.Count
	}
	return countOf(msg) // it is settled, or not known
}
