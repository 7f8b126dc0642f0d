package redelivery

import (
	"fmt"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// Lost reports a loss: another consumer may now get messages that the application still has. If the application handles
// such a message, it may be handled twice. Delivery.Lost says whether a message is one of them. Reclaim returns such a
// message to the Consumer, which asks the broker for it. NextLoss reports losses without an Observer.
//
// On Key_Shared the broker does not notify the client when a key moves. A key moves when the old consumer has no
// unacknowledged message of the key left, or loses its connection.
type Lost struct {
	Consumer     *Consumer // the Consumer that received the messages
	Subscription string    // of the Consumer
	Topic        string    // of the messages, with its partition; "" if they may be of any topic
	Why          Loss      // why they may be another consumer's
}

// Loss says why messages may now belong to another consumer. Metrics and logs use the same text.
type Loss string

const (
	// a connection was lost: the broker sends unacknowledged messages again, to any consumer
	LostConnection Loss = "connection"
	LostPartition  Loss = "partition" // another consumer became active on a Failover topic or partition
	LostConsumer   Loss = "consumer"  // the Consumer was closed, or gave up
)

// loss remembers that there was a loss.
type loss struct {
	any  atomic.Bool // a connection, a partition or the inner consumer was lost: since then group.Sent must be called
	all  atomic.Bool // LostConsumer was reported
	next signal      // for NextLoss
}

// NextLoss returns a channel that is closed at the next event that Observer.Lost reports. To miss none, take the
// channel before you call Delivery.
func (c *Consumer) NextLoss() <-chan struct{} { return c.loss.next.wait() }

// reportLossOfConsumer reports, once, that the Consumer was closed or gave up.
func (c *Consumer) reportLossOfConsumer() {
	if c.loss.all.CompareAndSwap(false, true) {
		c.reportLoss("", LostConsumer)
	}
}

// reportLoss reports that messages of a topic ("" for any topic) may belong to another consumer by now.
func (c *Consumer) reportLoss(topic string, why Loss) {
	c.loss.next.send()
	e := Lost{c, c.settings.Subscription, topic, why}
	switch {
	case c.observer.Lost == nil:
	case why == LostConsumer: // the Consumer's goroutines have ended
		c.observer.Lost(e)
	default:
		c.observerCalls.add(c, func() { c.observer.Lost(e) })
	}
}

// Reclaim returns nil if msg, which the application has, still belongs to this Consumer. It returns ErrNotInFlight if
// the application no longer has the message, or if another consumer may have it since a loss (Delivery.Lost). After
// ErrNotInFlight, do not begin to work on the message. After a loss, the Consumer also asks the broker for the message.
// If the message still belongs to this Consumer, it is delivered again, with the same count. An application that counts
// attempts itself may wrap msg: if the RedeliveryCount of msg is larger, the message is delivered with that count.
//
// To keep the order of a key, reclaim its oldest message first. If Reclaim returns ErrNotInFlight for it, reclaim the
// later messages too.
//
// Until the first loss, Reclaim returns nil for every message. It returns ErrClosed after the Consumer was closed or
// gave up reconnecting, and an error for a nil message. It returns nil for every message of a non-persistent topic, and
// for every message after Wrap, which does not see lost connections.
func (c *Consumer) Reclaim(msg pulsar.Message) error {
	n, err := c.nameOf(msg)
	switch {
	case err != nil:
		return err
	case c.isOver():
		return ErrClosed
	case !c.loss.any.Load() || !topicname.IsPersistent(n.Topic):
		return nil
	}
	count := orZero(msg.RedeliveryCount)
	now := c.lock()
	i, _, err := c.group.Find(n.ID, n.hand)
	if i.Current && i.Stale && !i.Busy {
		i.Count = count // TakeBackStale takes the larger one
		c.group.TakeBackStale(now, i.Delivery)
	}
	c.unlockAndAct(now)
	if err == nil && (!i.Current || i.Stale && !i.Busy) {
		err = fmt.Errorf("%w: %v", ErrNotInFlight, n.object)
	}
	return err
}

// Keep announces that the application will hold msg for a long time, for instance in a queue of its own, and reports
// whether msg fits the memory limit (WithMemoryLimit). If msg fits, it counts toward the limit until it is settled.
// Messages that wait for redelivery are dropped to make room: the broker sends them again when they are due. If msg
// does not fit, the application should take no more messages until some are settled. A Worker calls Keep for messages
// that wait for others of their keys.
//
// For a message that the application no longer has, fits is true. Keep returns ErrClosed after the Consumer was closed
// or gave up reconnecting, and an error for a nil message. It sends nothing to the broker.
func (c *Consumer) Keep(msg pulsar.Message) (fits bool, err error) {
	n, err := c.nameOf(msg)
	if err != nil {
		return false, err
	}
	if c.isOver() {
		return false, ErrClosed
	}
	if n.body == nil {
		return true, nil
	}
	cp := copyOf(n.body)
	now := c.lock()
	fits = c.group.Hold(n.ID, n.hand, &cp)
	c.unlockAndAct(now)
	return fits, nil
}
