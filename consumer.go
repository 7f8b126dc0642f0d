package redelivery

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/gate"
	"github.com/pulsar-redelivery/redelivery/internal/intake"
	"github.com/pulsar-redelivery/redelivery/internal/ledger"
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
	settings  *settings
	hooks     *hooks // in the inner consumer
	intake    *intake.Intake
	ledger    *ledger.Ledger
	publisher *publisher // of retries and dead letters
	outlet    outlet     // the channel that Chan returns
	calls     *gate.Gate // calls of the inner consumer
	crew      *gate.Gate // goroutines
	life      *life
	swallows  chores // copies of settled messages
	tally     struct{ swallowed, failed atomic.Uint64 }
	warned    atomic.Bool  // of many unacknowledged messages
	raw       atomic.Value // reflect.Type of the messages that the inner consumer delivers
	observed  observed
}

// life says until when what was begun is to go on.
type life struct {
	closing atomic.Bool     // Close has begun
	closed  chan struct{}   // closed when it has ended
	ended   context.Context // Close began, or the inner consumer has closed itself
	end     context.CancelFunc

	mu    sync.Mutex
	era   context.Context // ended by a Seek too: what was received before it is forgotten
	endIt context.CancelFunc
}

func newLife() *life {
	l := &life{closed: make(chan struct{})}
	l.ended, l.end = context.WithCancel(context.Background())
	l.era, l.endIt = context.WithCancel(l.ended)
	return l
}

// now is the present era.
func (l *life) now() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.era
}

// next begins another era.
func (l *life) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endIt()
	l.era, l.endIt = context.WithCancel(l.ended)
}

// newConsumer starts to drive consumer. p is nil if it was not prepared.
func newConsumer(consumer pulsar.Consumer, s *settings, p *preparation) *Consumer {
	c := &Consumer{
		inner:    consumer,
		settings: s,
		hooks:    &hooks{},
		calls:    gate.New(),
		crew:     gate.New(),
		life:     newLife(),
	}
	c.publisher = newPublisher(s, p)
	c.observe()
	messages := chanOf(consumer)
	c.ledger = ledger.New(c.ledgerOptions(p, cap(messages), messages != nil))
	if p != nil {
		c.hooks = p.hooks
		p.hooks.outer.Store(c)
	}
	c.intake = intake.New(consumer, messages, c.life.ended.Done(), c.hooks.mayBeClosed)
	if c.observed.Subscribed != nil {
		c.observed.Subscribed(c)
	}
	c.outlet.ch = make(chan pulsar.ConsumerMessage)
	if p != nil && p.opts.MessageChannel != nil {
		c.outlet.ch = p.opts.MessageChannel
		c.startFeeder()
	}
	return c
}

// ask requests a message. The inner consumer sends requests with its next tick.
func (c *Consumer) ask(child pulsar.Consumer, topic string, id pulsar.MessageID) {
	c.hooks.asked()
	child.NackID(id)
	c.asked(topic, id)
}

// Seek resets the subscription to a message id. The Consumer forgets the messages received before: their nacks no longer
// redeliver them.
func (c *Consumer) Seek(id pulsar.MessageID) error {
	if err := checkID(id); err != nil {
		return err
	}
	if !isPulsarID(id) {
		return foreign(id) // upstream would stop dispatching until it reconnects
	}
	return c.alone(func() error { return c.inner.Seek(id) })
}

// SeekByTime resets the subscription to a publish time. The Consumer forgets the messages received before: their nacks no
// longer redeliver them.
func (c *Consumer) SeekByTime(t time.Time) error {
	return c.alone(func() error { return c.inner.SeekByTime(t) })
}

// alone calls the inner consumer while nobody takes messages from it, and forgets what was received before. Upstream's Seek
// drains its channel and can block against a second reader; its zero-queue consumer has Unsubscribe wait for Receive.
func (c *Consumer) alone(call func() error) error {
	if err := c.intake.Borrow(); err != nil {
		return ErrClosed
	}
	defer c.intake.Release()
	if err := c.call(call); err != nil {
		return err
	}
	c.life.next()
	c.ledger.Clear()
	return nil
}

// Unsubscribe deletes the subscription. The Consumer forgets the messages received before.
func (c *Consumer) Unsubscribe() error { return c.alone(c.inner.Unsubscribe) }

// UnsubscribeForce deletes the subscription and disconnects its consumers. The Consumer forgets the messages received before.
func (c *Consumer) UnsubscribeForce() error { return c.alone(c.inner.UnsubscribeForce) }

// GetLastMessageIDs returns the id of the last message published to each partition.
func (c *Consumer) GetLastMessageIDs() ([]pulsar.TopicMessageID, error) {
	c.hooks.queries.Add(1)
	defer c.hooks.queries.Add(-1)
	return c.inner.GetLastMessageIDs()
}

// Stats are the counters of a Consumer since it was made, and its current state.
type Stats struct {
	Waiting     int    // messages that wait for their delay, for the broker, or for the application to take them again
	HeldBytes   int64  // size of the messages that are kept in memory until they are due; see WithHoldLimit
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
	s := c.ledger.Stats()
	return Stats{s.Waiting, s.HeldBytes, s.Held, s.Dropped, s.Redelivered, c.tally.swallowed.Load(), s.Late, c.tally.failed.Load(), s.Oldest}
}

// RedeliveryCount returns how often msg was delivered before. This is the count that policies get. While msg is not settled, it
// is the larger of the broker's count and the Consumer's own, so it also grows where the broker's count stays 0 (Exclusive,
// Failover) or is reset. The broker counts a batch as a whole; for its messages the Consumer's own count holds from the second
// delivery on.
func (c *Consumer) RedeliveryCount(msg pulsar.Message) uint32 {
	n, err := c.nameOf(msg)
	if err != nil {
		c.fail("count", "redelivery count", err)
		return 0
	}
	if count, ok := c.ledger.Count(n); ok {
		return count
	}
	return msg.RedeliveryCount()
}

// fail reports what cannot be returned. The operation is for observers.
func (c *Consumer) fail(operation, what string, err error, attrs ...any) {
	c.report(what, err, attrs...)
	c.failed(operation, err)
}

// report is fail without telling observers: they are told already.
func (c *Consumer) report(what string, err error, attrs ...any) {
	c.tally.failed.Add(1)
	c.log(slog.LevelWarn, what+" failed", append(attrs, "error", err)...)
}

func (c *Consumer) log(level slog.Level, msg string, attrs ...any) {
	c.settings.logger.Log(context.Background(), level, "redelivery: "+msg,
		append(attrs, "consumer", c.Name(), "subscription", c.Subscription())...)
}
