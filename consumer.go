package redelivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/driver"
)

// inner is embedded under a name of its own, so that the consumer below does not show.
type inner = pulsar.Consumer

// Consumer is a pulsar.Consumer that redelivers by policy. A message that the application nacks, or does not settle before its
// ack timeout, comes back after the delay that the policy gives for its redelivery count, and never earlier. Subscribe and Wrap
// make a Consumer. It is safe for concurrent use.
//
// Methods of pulsar.Consumer that are not documented here behave as in pulsar-client-go. No method panics on a nil message or id,
// or on a foreign one, which did not come from pulsar-client-go: the method returns an error. If it has no error to return, it
// logs a warning and counts the failure in Stats.
type Consumer struct {
	inner
	driver   *driver.Driver
	observer Observer // all that WithObserver gave
}

// newConsumer starts to drive consumer. p is nil if it was not prepared.
func newConsumer(consumer pulsar.Consumer, s *settings, p *driver.Preparation) *Consumer {
	c := &Consumer{inner: consumer}
	if s.Logger.Enabled(context.Background(), slog.LevelDebug) { // what is to be logged has to be known when a message is delivered
		s.observers = append(s.observers, c.decisions())
	}
	c.driver = driver.New(c, consumer, &s.Settings, p, c.observe(s.observers))
	c.driver.Start(func() {
		if c.observer.Subscribed != nil {
			c.observer.Subscribed(c)
		}
	})
	return c
}

// Receive returns the next message: one that is due for redelivery or the next of the subscription. It blocks until there is one.
// It returns an error when ctx is done or the Consumer is closed. After Chan, or with MessageChannel in pulsar.ConsumerOptions, it takes
// the message from that channel.
func (c *Consumer) Receive(ctx context.Context) (pulsar.Message, error) {
	return c.driver.Receive(ctx)
}

// Chan returns a channel of messages; the Consumer field of each is this Consumer. The channel is the MessageChannel of
// pulsar.ConsumerOptions, if there was one. The application has a message when it has taken it from the channel. Unlike the
// channel of pulsar-client-go, this one has no buffer of its own. Like that one, it is never closed.
func (c *Consumer) Chan() <-chan pulsar.ConsumerMessage {
	return c.driver.Chan()
}

// Seek resets the subscription to a message id. The Consumer forgets the messages received before: their nacks no longer
// redeliver them.
func (c *Consumer) Seek(id pulsar.MessageID) error {
	return c.driver.Seek(id)
}

// SeekByTime resets the subscription to a publish time. The Consumer forgets the messages received before: their nacks no
// longer redeliver them.
func (c *Consumer) SeekByTime(t time.Time) error {
	return c.driver.WithReaderStopped(func() error { return c.inner.SeekByTime(t) })
}

// Unsubscribe deletes the subscription. The Consumer forgets the messages received before.
func (c *Consumer) Unsubscribe() error { return c.driver.WithReaderStopped(c.inner.Unsubscribe) }

// UnsubscribeForce deletes the subscription and disconnects its consumers. The Consumer forgets the messages received before.
func (c *Consumer) UnsubscribeForce() error {
	return c.driver.WithReaderStopped(c.inner.UnsubscribeForce)
}

// GetLastMessageIDs returns the id of the last message published to each partition.
func (c *Consumer) GetLastMessageIDs() ([]pulsar.TopicMessageID, error) {
	return c.driver.GetLastMessageIDs()
}

// Close closes the Consumer. It settles nothing and loses nothing: the broker redelivers unacknowledged messages. For messages that are
// being published to the retry or dead letter topic it waits half a second at most; those that have no answer by then may come twice.
// When Close returns, the Consumer's goroutines have ended, but for two kinds: those that wait for pulsar-client-go to make a producer of
// the retry or dead letter topic, and those that are in a callback, for instance one that calls Close. A second call waits until
// the Consumer is closed. While an interceptor runs, it waits for a second at most, since the interceptor may be the caller.
func (c *Consumer) Close() {
	if c.driver.Close() && c.observer.Closed != nil {
		c.observer.Closed(c)
	}
}

// Stats are the counters of a Consumer since it was made, and its current state.
type Stats struct {
	Waiting     int    // messages that wait for their delay, for the broker, or for the application to take them again
	HeldBytes   int64  // size of the messages that are kept in memory, those that the application has too; see WithHoldLimit
	Held        uint64 // copies that came early and were held back
	Dropped     uint64 // copies that came early and did not fit the hold limit; the broker is asked for them when they are due
	Redelivered uint64 // messages handed out again
	Swallowed   uint64 // copies of settled messages; they were acknowledged again and not handed out
	Late        uint64 // redeliveries for which the broker took over a second
	Failed      uint64 // failures that no method could return as an error; each is logged

	OldestWaiting time.Duration // how long the message that waits longest has waited; 0 without WithObserver
}

// Stats returns the Consumer's counters and its current state.
func (c *Consumer) Stats() Stats {
	s, swallowed, failed := c.driver.Stats()
	return Stats{s.Waiting, s.HeldBytes, s.Held, s.Dropped, s.Redelivered, swallowed, s.Late, failed, s.Oldest}
}

// RedeliveryCount returns how often msg was delivered before. This is the count that policies get. While msg is not settled, it
// is the larger of the broker's count and the Consumer's own, so it also grows where the broker's count stays 0 (Exclusive,
// Failover) or is reset. The broker counts a batch as a whole; for its messages the Consumer's own count holds from the second
// delivery on.
func (c *Consumer) RedeliveryCount(msg pulsar.Message) uint32 {
	return c.driver.RedeliveryCount(msg)
}

// Delivery is what a Consumer knows about a message that the application has.
type Delivery struct {
	RedeliveryCount uint32        // how often it was delivered before; policies get this count
	Last            bool          // no delivery is left: a nack makes it a dead letter
	NackDelay       time.Duration // how long Nack would delay it
	AckDeadline     time.Time     // when its ack timeout is over; zero if no timeout runs
}

// Delivery returns what the Consumer knows about msg, even if msg is no longer its newest delivery. For a message that the
// Consumer does not know, the redelivery count is the broker's. If the application wrapped the message and the wrapper's count is
// larger, that count is returned. It returns ErrClosed after the Consumer was closed or gave up reconnecting, and an error for a
// nil message.
func (c *Consumer) Delivery(msg pulsar.Message) (Delivery, error) {
	d, err := c.driver.Delivery(msg)
	return Delivery(d), err
}

// InProgress restarts the ack timeout of a message that the application is still working on. Without WithAckTimeout it does
// nothing. It returns ErrNotHeld if the application no longer has the message, ErrClosed after the Consumer was closed or gave up
// reconnecting, and an error for a nil message.
func (c *Consumer) InProgress(msg pulsar.Message) error {
	return c.driver.InProgress(msg)
}

// Errors of this package, for errors.Is. Errors of pulsar-client-go are returned unchanged.
var (
	// ErrInvalidOption says that an option of this package has a wrong value, or does not go together with another one or with a
	// field of pulsar.ConsumerOptions. The error names the option, its value and what is allowed.
	ErrInvalidOption = driver.ErrInvalidOption

	// ErrClosed says that the Consumer was closed before the call or during it.
	ErrClosed = driver.ErrClosed

	// ErrNotHeld says that the application no longer has the message: it was settled or nacked, or its ack timeout is over.
	ErrNotHeld = driver.ErrNotHeld

	// ErrNoRetryTopic says that the Consumer has no retry topic: it was subscribed with neither RetryEnable nor
	// WithReconsumeBackoff, or wrapped without WithReconsumer. Of DeadLetter it says that there is no dead letter topic, since there was no
	// ConsumerOptions.DLQ either.
	ErrNoRetryTopic = driver.ErrNoRetryTopic
)
