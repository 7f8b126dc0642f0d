package redelivery

import (
	"math"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// Delivery describes a message that the application has. For a message that is settled or waits, the fields are as
// they would be if the application had it now, and AckDeadline is zero.
type Delivery struct {
	Attempt         uint32        // number of this attempt, from 1, over all retries
	RedeliveryCount uint32        // how often it was delivered before; policies get this count
	Last            bool          // no delivery is left: a nack makes it a dead letter
	NackDelay       time.Duration // how long Nack would delay it
	AckDeadline     time.Time     // when its ack timeout is over; zero if no timeout runs
	// when the message was published; for a retry, when its original message was published
	FirstPublished time.Time
	// another consumer may have it, see Observer.Lost; false again once the broker has sent it again
	Lost bool
	// its batch has settled messages, which come again after a restart unless this one is settled too; see
	// Stats.Unfinished
	Begun bool
	// it was acknowledged or published to another topic; false once the Consumer has forgotten it
	Settled bool
	Waiting bool // it was nacked or timed out, and comes back
}

// Delivery describes msg, even if the message was delivered again since. For a message that the Consumer does not know,
// the redelivery count is the broker's. If the application wrapped the message and the wrapper's count is larger, that
// count is returned. Delivery returns ErrClosed after the Consumer was closed or gave up reconnecting, and an error for
// a nil message.
func (c *Consumer) Delivery(msg pulsar.Message) (Delivery, error) {
	n, err := c.nameOf(msg)
	if err != nil {
		return Delivery{}, err
	}
	if c.isOver() {
		return Delivery{}, ErrClosed
	}
	i, isOpen, _ := c.find(&n)
	if !isOpen || !n.isOwn {
		i.Count = max(i.Count, orZero(msg.RedeliveryCount))
	}
	attempt, published := c.settings.attemptOf(msg, i.Count)
	d := Delivery{
		Attempt:         attempt,
		RedeliveryCount: i.Count,
		Last:            c.isLast(i.Count),
		NackDelay:       max(0, c.nackDelay(i.Count)),
		FirstPublished:  published,
		Lost:            i.Current && i.Stale,
		Begun:           i.Begun,
		Settled:         i.State == partition.Settled,
		Waiting:         isOpen && i.State != partition.Held,
	}
	if i.Current && i.At > 0 {
		d.AckDeadline = c.start.Add(i.At)
	}
	return d, nil
}

// attemptOf returns the number of the attempt at a message with a redelivery count, over all retries, and when the
// message was first published. published is zero if a method of msg panics.
func (s *settings) attemptOf(msg pulsar.Message, count uint32) (attempt uint32, published time.Time) {
	attempt = count + min(1, ^count)
	defer func() { _ = recover() }()
	if !s.isRetry(msg) {
		return attempt, msg.PublishTime()
	}
	// the count of a retry includes deliveries of the message that it was made of
	before, counted := publishing.Attempts(msg), publishing.RedeliveryCount(msg)
	attempt = uint32(min(uint64(before)+uint64(count-min(count, counted))+1, math.MaxUint32))
	return attempt, publishing.FirstPublished(msg)
}

// RedeliveryCount returns how often msg was delivered before. Policies get this count. While msg is not settled, the
// result is the larger of the broker's count and the Consumer's own. So it also grows where the broker's count stays 0
// (Exclusive, Failover) or is reset. The broker counts a batch as a whole; for the messages of a batch the Consumer
// uses its own count from the second delivery on. A retry of the ReconsumeLater methods is a new message, whose count
// begins at 0. A message that a nack moved to the retry topic (WithNackRetryTopic) keeps its count.
func (c *Consumer) RedeliveryCount(msg pulsar.Message) uint32 {
	n, err := c.nameOf(msg)
	if err != nil {
		c.reportFailure("count", "reading a redelivery count", err)
		return 0
	}
	if i, isOpen, _ := c.find(&n); isOpen {
		return i.Count
	}
	return orZero(msg.RedeliveryCount) // the message is settled or unknown
}
