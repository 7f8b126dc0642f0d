package redelivery

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// Lost reports that messages that the application has may belong to another consumer by now. Delivery.Lost says whether a message is one
// of them, and Reclaim finds out whose it is. NextLoss reports the same without an Observer. If the application goes on with such a
// message, it may be handled twice.
//
// On Key_Shared the broker does not tell the client that a key has moved. A key moves when the old consumer has no unacknowledged message
// of it left, or loses its connection.
type Lost struct {
	Consumer     *Consumer // the one that had them
	Subscription string    // of the Consumer
	Topic        string    // of the messages, with its partition; "" if unknown: it may be any
	Why          Loss      // what happened
}

// Loss says why messages may now belong to another consumer. Metrics and logs use the same text.
type Loss string

const (
	LostConnection Loss = "connection" // a connection was lost: the broker sends unacknowledged messages again, to any consumer
	LostPartition  Loss = "partition"  // another consumer became active on a Failover topic or partition
	LostConsumer   Loss = "consumer"   // the Consumer was closed, or gave up
)

// losses are told by a channel too.
type losses struct {
	any    atomic.Bool // ever
	closed sync.Once   // all were lost with the Consumer

	mu   sync.Mutex
	next chan struct{} // closed by the next one; nil if nobody waits for that
}

// NextLoss returns a channel that is closed at the next event that Observer.Lost reports. To miss none, take the channel before you call
// Delivery.
func (c *Consumer) NextLoss() <-chan struct{} {
	c.losses.mu.Lock()
	defer c.losses.mu.Unlock()
	if c.losses.next == nil {
		c.losses.next = make(chan struct{})
	}
	return c.losses.next
}

// lost tells that messages were lost.
func (c *Consumer) lost(topic string, why Loss) {
	c.losses.any.Store(true)
	c.losses.mu.Lock()
	if c.losses.next != nil {
		close(c.losses.next)
		c.losses.next = nil
	}
	c.losses.mu.Unlock()
	e := Lost{c, c.observer.subscription, topic, why}
	switch {
	case c.observer.Lost == nil:
	case why == LostConsumer: // no goroutine of the Consumer tells any more
		c.observer.Lost(e)
	default:
		c.tell(func() { c.observer.Lost(e) })
	}
}

// lostAll tells that the Consumer is of no use any more.
func (c *Consumer) lostAll() { c.lost("", LostConsumer) }

// Reclaim reports whether a message that the application has still belongs to this Consumer. After a loss (Delivery.Lost) this is unknown
// at first: Reclaim returns false at once, and begins to find out. Call it again, for example every 100 ms. If somebody receives
// meanwhile, the answer comes within some seconds, of several topics or partitions within half a minute: true, because the broker has sent
// the message again, or ErrNotInFlight, because another consumer has it or it is settled. After ErrNotInFlight do not begin to work on it;
// if it belongs to this Consumer after all, it will be delivered.
//
// To keep the order of a key, reclaim its oldest message first, and if that returns ErrNotInFlight the later ones too. With several
// topics or partitions pulsar-client-go does not say which one lost its connection. Then Reclaim asks the broker to send the message
// again, which the broker counts as a redelivery; on Shared it may send it to another consumer.
//
// Reclaim returns ErrClosed after the Consumer was closed or gave up reconnecting, and an error for a nil message. It returns true for
// every message of a non-persistent topic, and for every message after Wrap, which does not see lost connections.
func (c *Consumer) Reclaim(msg pulsar.Message) (ours bool, err error) {
	n, err := c.nameOf(msg)
	switch {
	case err != nil:
		return false, err
	case c.life.ended.Err() != nil:
		return false, ErrClosed
	case !c.losses.any.Load() || !topicname.IsPersistent(n.Topic):
		return true, nil
	}
	ours, had := c.ledger.Reclaim(n, countOf(msg))
	if !had {
		err = fmt.Errorf("%w: %v", ErrNotInFlight, n.ID)
	}
	return ours, err
}
