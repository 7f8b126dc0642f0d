package redelivery

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/acktimeout"
	"github.com/pulsar-redelivery/redelivery/internal/delivery"
	"github.com/pulsar-redelivery/redelivery/nack"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// inner is embedded under a name of its own, so that the consumer below does not show.
type inner = pulsar.Consumer

// Consumer is a pulsar.Consumer that redelivers by policy: what the application nacks, or does not settle before its ack
// timeout, comes back when the policy's delay for its redelivery count is over, never early and late by little more than
// the resolution. Subscribe and Wrap make one; any number of goroutines may use it.
//
// Methods that are not documented here do what they do on the consumer below. No method panics on a nil or foreign message
// or id: it returns an error, or, having none to return, logs a warning and counts it in Stats.
type Consumer struct {
	inner
	settings           *settings
	interceptors       pulsar.ConsumerInterceptors
	innerCloses        *atomic.Int32 // how many told that they are closed; nil if they do not tell
	nacksUndecryptable bool
	reconsumer         *reconsume.Reconsumer         // nil without retries and dead letters
	ownReconsumer      bool                          // which Close closes
	retryTopic         string                        // its whole name; messages of it may come early; "" if there is none
	maxDeliveries      uint32                        // after which a message is a dead letter; 0 for none
	tick               time.Duration                 // of the inner consumer's requests; 0 if unknown
	messages           <-chan pulsar.ConsumerMessage // of the inner consumer; nil if it has no queue
	out                chan pulsar.ConsumerMessage   // what Chan returns

	nacks    *nack.Tracker[delivery.Ref]       // of messages that wait: for their delay, or for what was asked for
	timeouts *acktimeout.Tracker[delivery.Ref] // of messages that the application has; nil without an ack timeout

	turn   chan struct{} // held by who takes messages from the inner consumer: they must enter the table in order
	wake   chan struct{} // tells the holder of turn to look at the table again, or to let go
	check  *time.Ticker  // tells the holder of turn to see whether the inner consumer still lives
	closed chan struct{} // closed when Close has ended
	feed   sync.Once
	close  sync.Once
	work   sync.WaitGroup // feeder and swallower

	// ended is cancelled when Close begins or the inner consumer has closed itself.
	ended context.Context
	end   context.CancelFunc

	waiters  atomic.Int32 // how many want turn for more than a message
	children int          // of the inner consumer, one for each topic, that give up before it is of no use
	pattern  bool         // so that topics may vanish

	mu        sync.Mutex // guards what follows; the inner consumer is never called under it
	closing   bool
	calls     int                            // of the inner consumer that are under way and wait for the broker
	settling  map[delivery.Ref]chan struct{} // closed when who settles a message is done; only where another waits for it
	idle      chan struct{}                  // closed when there are none; Close makes it
	gone      int                            // children that gave up
	table     *delivery.Table
	epoch     chan struct{} // closed when the table is cleared
	swallow   chores        // copies of settled messages
	dead      chores        // dead letters
	moves     chores        // to the retry topic
	warned    bool          // of many unacknowledged messages
	lastAsk   time.Time
	swallowed uint64
	failed    uint64
}

// newConsumer starts to drive consumer. p is nil if it was not prepared.
func newConsumer(consumer pulsar.Consumer, s *settings, p *preparation) *Consumer {
	c := &Consumer{
		inner:    consumer,
		settings: s,
		messages: chanOf(consumer),
		turn:     make(chan struct{}, 1),
		wake:     make(chan struct{}, 1),
		check:    time.NewTicker(time.Second),
		closed:   make(chan struct{}),
		epoch:    make(chan struct{}),
		settling: map[delivery.Ref]chan struct{}{},
	}
	c.ended, c.end = context.WithCancel(context.Background())
	c.reconsumer = s.reconsumer
	var user chan pulsar.ConsumerMessage
	if p != nil {
		c.tick = tick(s.resolution)
		c.interceptors, c.nacksUndecryptable = p.interceptors.of, p.nacksUndecryptable()
		user, c.children = p.opts.MessageChannel, p.children()
		c.pattern = p.opts.TopicsPattern != ""
		if p.reconsumer != nil {
			c.reconsumer, c.ownReconsumer = p.reconsumer, true
		}
		if c.reconsumer != nil {
			c.maxDeliveries = maxDeliveries(p.opts)
		}
		c.innerCloses = &p.interceptors.closes
		p.interceptors.outer.Store(c)
	}
	if c.reconsumer != nil && !(c.pattern && c.ownReconsumer) { // whose retry topic nobody chose
		c.retryTopic = fullTopic(c.reconsumer.RetryTopic())
	}
	c.table = delivery.New(tableOptions(s, p, c.messages != nil))
	c.nacks = nack.New(s.nackBackoff, c.due)
	if s.ackTimeout != nil {
		c.timeouts = acktimeout.New(0, s.ackTimeout, c.due)
	}
	c.out = user
	if user != nil {
		c.feed.Do(c.startFeeder)
	} else {
		c.out = make(chan pulsar.ConsumerMessage)
	}
	return c
}

// tableOptions returns what a table is to know of a consumer; p is nil if it was not prepared.
func tableOptions(s *settings, p *preparation, hasQueue bool) delivery.Options {
	o := delivery.Options{HoldLimit: s.holdLimit, RequestTimeout: delivery.RequestTimeout, Ahead: s.innerDelay}
	if p != nil {
		o.Rewinds, o.Ahead, o.AckDelay = p.rewinds(), p.ahead(), p.ackDelay()
		o.IndexAcks = p.opts.EnableBatchIndexAcknowledgment
		o.RequestTimeout += s.resolution
	} else {
		innerDelay := s.innerDelay
		if innerDelay == 0 {
			innerDelay = nack.DefaultDelay
		}
		o.RequestTimeout += innerDelay + innerDelay/3
	}
	if !hasQueue {
		o.HoldLimit = 0 // who waits for a zero-queue consumer's next message cannot wait for a held one too
	}
	if o.HoldLimit == 0 {
		o.Ahead = 0
	}
	return o
}

// Seek resets the subscription to a message id. What was received before is forgotten: nothing of it is redelivered for a
// nack any more.
func (c *Consumer) Seek(id pulsar.MessageID) error {
	if err := checkID(id); err != nil {
		return err
	}
	if !isPulsarID(id) {
		return foreign(id) // upstream would stop dispatching until it reconnects
	}
	return c.alone(func() error { return c.inner.Seek(id) })
}

// SeekByTime resets the subscription to a publish time. What was received before is forgotten: nothing of it is
// redelivered for a nack any more.
func (c *Consumer) SeekByTime(t time.Time) error {
	return c.alone(func() error { return c.inner.SeekByTime(t) })
}

// alone calls the inner consumer while nobody takes messages from it, and forgets what was received before. Upstream's Seek
// drains its channel and can block against a second reader; its zero-queue consumer has Unsubscribe wait for Receive.
func (c *Consumer) alone(call func() error) error {
	c.waiters.Add(1)
	c.nudge()
	select {
	case c.turn <- struct{}{}:
		c.waiters.Add(-1)
	case <-c.ended.Done():
		c.waiters.Add(-1)
		return ErrClosed
	}
	defer func() { <-c.turn }()
	if c.ended.Err() != nil {
		return ErrClosed
	}
	if err := c.call(call); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	return nil
}

// Unsubscribe deletes the subscription. What was received before is forgotten.
func (c *Consumer) Unsubscribe() error { return c.alone(c.inner.Unsubscribe) }

// UnsubscribeForce deletes the subscription and disconnects its consumers. What was received before is forgotten.
func (c *Consumer) UnsubscribeForce() error { return c.alone(c.inner.UnsubscribeForce) }

// Stats is what a Consumer did and has on its hands.
type Stats struct {
	Waiting     int    // messages that wait for their delay, for the broker, or for the application to take them again
	HeldBytes   int64  // size of the early copies that are held back now
	Held        uint64 // copies that came early and were held back
	Dropped     uint64 // copies that came early and did not fit the hold limit; they are asked for when due
	Redelivered uint64 // messages handed out again
	Swallowed   uint64 // copies of messages settled already; they were acknowledged again and not handed out
	Late        uint64 // redeliveries that the broker took over a second for
	Failed      uint64 // what could not be done and could not be returned as an error either; each is logged
}

// Stats returns what the Consumer did until now and has on its hands.
func (c *Consumer) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{
		Waiting:     c.table.Waiting(),
		HeldBytes:   c.table.HeldBytes(),
		Held:        c.table.Held,
		Dropped:     c.table.Dropped,
		Redelivered: c.table.Redelivered,
		Swallowed:   c.swallowed,
		Late:        c.table.Late,
		Failed:      c.failed,
	}
}

// RedeliveryCount returns how often msg was delivered before, as the policies see it: the larger of the broker's count and
// the Consumer's own while msg is not settled, so that it grows where the broker's stays 0 (Exclusive, Failover) or is
// reset. In a batch, where the broker counts the whole batch, it is the Consumer's own from the second delivery on.
func (c *Consumer) RedeliveryCount(msg pulsar.Message) uint32 {
	id, err := idOf(msg)
	if err != nil {
		c.fail("redelivery count", err)
		return 0
	}
	if count, ok := c.count(id); ok {
		return count
	}
	return msg.RedeliveryCount()
}

func (c *Consumer) count(id pulsar.MessageID) (uint32, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.Count(id)
}

// fail reports what cannot be returned.
func (c *Consumer) fail(what string, err error, attrs ...any) {
	c.mu.Lock()
	c.failed++
	c.mu.Unlock()
	c.log(slog.LevelWarn, what+" failed", append(attrs, "error", err)...)
}

func (c *Consumer) log(level slog.Level, msg string, attrs ...any) {
	c.settings.logger.Log(context.Background(), level, "redelivery: "+msg,
		append(attrs, "consumer", c.Name(), "subscription", c.Subscription())...)
}
