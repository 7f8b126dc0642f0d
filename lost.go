package redelivery

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Lost tells that messages that the application has may be another consumer's by now. Delivery says of a message whether it is one of
// them, and Reclaim finds out whose it is; NextLoss is for those who cannot observe. A message that the application goes on with may be
// handled twice.
//
// On Key_Shared nobody tells the client that a key has moved. It moves when the old consumer has nothing unacknowledged of it left, or
// loses its connection.
type Lost struct {
	Consumer     *Consumer // that lost them
	Subscription string    // of the Consumer
	Topic        string    // of the messages, with its partition; "" if that is not known: of any
	Why          Loss      // what happened
}

// Loss says why messages were lost. Its text is the one that package metrics and the log have.
type Loss string

const (
	LostConnection Loss = "connection" // a connection was lost: the broker sends what is not acknowledged again, to whichever consumer
	LostPartition  Loss = "partition"  // another consumer became the active one of a Failover topic or partition
	LostConsumer   Loss = "consumer"   // the Consumer was closed, or gave up
)

// losses are told by a channel too.
type losses struct {
	any    atomic.Bool // ever
	closed sync.Once   // all were lost with the Consumer

	mu   sync.Mutex
	next chan struct{} // closed by the next one; nil if nobody waits for that
}

// NextLoss returns a channel that is closed when the Consumer next loses messages, as Observer.Lost tells. Take the channel before you look at
// Delivery, so as not to miss a loss.
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

// Reclaim reports whether a message that the application has is this Consumer's. If that is in doubt, as Delivery.Lost tells, Reclaim
// finds out, without letting go of the message: it returns false, and does not wait. Ask again later, such as after 100 ms. Within some
// seconds, if somebody receives meanwhile, the answer is true, because the broker has sent the message again, or ErrNotInFlight: another
// consumer has it, or it is settled. Then do not begin to work on it; if it is this Consumer's after all, it will be delivered.
//
// Ask for the oldest message of a key first, and for the later ones too when the answer is ErrNotInFlight: so their order holds. With
// several topics or partitions pulsar-client-go does not tell whose connection was lost. Then Reclaim asks the broker to send the message
// again, which counts there as a redelivery; on Shared that may hand it to another consumer.
//
// Reclaim returns ErrClosed after the Consumer was closed or gave up reconnecting, and an error for a nil message. Messages of
// non-persistent topics are always this Consumer's, and so are those of a consumer that Wrap got: it does not tell of its connections.
func (c *Consumer) Reclaim(msg pulsar.Message) (ours bool, err error) {
	n, err := c.nameOf(msg)
	switch {
	case err != nil:
		return false, err
	case c.life.ended.Err() != nil:
		return false, ErrClosed
	case !c.losses.any.Load() || !isTracked(msg):
		return true, nil
	}
	ours, had := c.ledger.Reclaim(n, countOf(msg))
	if !had {
		err = fmt.Errorf("%w: %v", ErrNotInFlight, n.ID)
	}
	return ours, err
}
