package redelivery

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/gate"
	"github.com/pulsar-redelivery/redelivery/internal/intake"
	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// Consumer is a pulsar.Consumer that redelivers by policy. A message that the application nacks, or does not settle before its
// ack timeout, comes back after the delay that the policy gives for its redelivery count, and never earlier. Subscribe,
// SubscribeWith and Wrap make a Consumer. It is safe for concurrent use.
//
// Methods of pulsar.Consumer that are not documented here behave as in pulsar-client-go. No method panics on a nil message or id,
// or on a foreign one, which did not come from pulsar-client-go: the method returns an error, or, if it returns none, logs a warning
// and counts the failure in Stats. A message of another Consumer of the same topics may be acknowledged with this one, but of a batch all or
// none: else the broker never learns that the batch is acknowledged. A nack of it changes nothing.
type Consumer struct {
	inner     inner
	raw       atomic.Value // reflect.Type of the messages that the inner consumer delivers
	settings  *settings
	options   Options
	hooks     *hooks // of the inner consumer
	intake    *intake.Intake
	cameAgain bool // the last delivered message had waited here; belongs to the goroutine that has the turn
	ledger    *ledger.Ledger
	publisher *publisher // of retries and dead letters
	outlet    outlet     // the channel that Chan returns
	observer  observer
	attempts  *attemptLog // nil without WithAttemptLog

	calls         *gate.Gate // calls of the inner consumer
	goroutines    *gate.Gate // of the Consumer
	life          *life
	pause         *pause // of receiving
	losses        losses
	tally         tally
	blocked       blocked
	seeking       atomic.Bool // or it unsubscribes
	wrapped       bool        // by Wrap
	limitExceeded sync.Once   // with Wrap
	covering      atomic.Bool // cumulative acknowledgements are about to be made once more

	// What goroutines that must not wait have others do:
	swallows  chores // copies of settled messages
	callbacks chores // calls of policies for messages that the application does not get
	requests  chores // what interceptors are told of requests
}

// tally is what has happened.
type tally struct {
	swallowed, failed atomic.Uint64
}

// newConsumer begins to drive the inner consumer. p is nil of one that Wrap got.
func newConsumer(inner pulsar.Consumer, s *settings, publisher *publisher, log *attemptLog, p *preparation) *Consumer {
	c := &Consumer{
		settings:   s,
		hooks:      &hooks{},
		publisher:  publisher,
		calls:      gate.New(),
		goroutines: gate.New(),
		life:       newLife(),
		pause:      newPause(),
		attempts:   log,
		wrapped:    p == nil,
	}
	c.inner.now.Store(&inner)
	messages, ahead := chanOf(inner), 0
	if p != nil {
		c.inner.again, c.inner.main, c.inner.hasRetryTopic, c.hooks = p.again, p.main, p.publisher.subscribed() != "", p.hooks
		c.options = optionsOf(s, publisher, p.opts.SubscriptionName, &p.opts)
		_, ahead = p.buffer()
		p.warn()
	} else {
		c.options = optionsOf(s, publisher, inner.Subscription(), nil)
	}
	c.observe(s.observers)
	c.ledger = ledger.New(c.ledgerOptions(p, cap(messages)+ahead, messages != nil))
	c.intake = intake.New(c.life.ended, inner, messages, ahead, c.hooks.mayBeClosed, func(quiet time.Duration) { c.safely(func() { c.idle(quiet) }) })
	c.outlet.ch = make(chan pulsar.ConsumerMessage)
	if p != nil && p.opts.MessageChannel != nil {
		c.outlet.ch, c.outlet.given = p.opts.MessageChannel, true
	}
	context.AfterFunc(c.life.ended, func() {
		if !c.life.closing.Load() { // it gave up; else Close tells
			c.losses.closed.Do(c.lostAll)
		}
	})
	c.hooks.tellTo(c)
	if log != nil {
		log.outer.Store(c)
	}
	if c.observer.Subscribed != nil {
		c.observer.Subscribed(c)
	}
	if c.outlet.given {
		c.startFeeder()
	}
	return c
}

// Name returns the name of the consumer.
func (c *Consumer) Name() string { return c.current().Name() }

// Subscription returns the subscription's name.
func (c *Consumer) Subscription() string { return c.current().Subscription() }

// ask requests a message. The inner consumer sends requests with its next tick.
func (c *Consumer) ask(child pulsar.Consumer, topic string, id pulsar.MessageID) {
	c.hooks.asked()
	child.NackID(id)
	c.asked(topic, id)
}

// GetLastMessageIDs returns the id of the last message published to each partition. With TopicsPattern it must not be called while topics
// appear or vanish: pulsar-client-go goes through its own list of them without a lock.
func (c *Consumer) GetLastMessageIDs() ([]pulsar.TopicMessageID, error) {
	return c.current().GetLastMessageIDs()
}

// Unsubscribe deletes the subscription. The Consumer forgets the messages received before. Close it afterwards: what it had prefetched
// can still be received, and acknowledging that fails.
func (c *Consumer) Unsubscribe() error {
	return c.unsubscribe(pulsar.Consumer.Unsubscribe)
}

// UnsubscribeForce deletes the subscription and disconnects its consumers. The Consumer forgets the messages received before.
func (c *Consumer) UnsubscribeForce() error {
	return c.unsubscribe(pulsar.Consumer.UnsubscribeForce)
}

func (c *Consumer) unsubscribe(how func(pulsar.Consumer) error) error {
	return c.withReaderStopped(func() error {
		err := how(c.current())
		c.inner.deleted = c.inner.deleted || err == nil
		return err
	})
}

// Stats are the counters of a Consumer since it was made, and its current state.
type Stats struct {
	Waiting       int    // messages that wait for their delay, for the broker, or for the next Receive
	Ready         int    // those of Waiting whose delay is over: only the broker or the next Receive is waited for
	BufferedBytes int64  // size of the messages in memory, including those that the application has; see WithMemoryLimit
	Buffered      uint64 // copies that the broker sent early and that wait in memory until they are due
	Dropped       uint64 // messages that were dropped because they come again; see Observer.Dropped
	Redelivered   uint64 // messages delivered again to the application, but not after Snooze
	Swallowed     uint64 // copies of settled messages; they were acknowledged again and not delivered
	Late          uint64 // redeliveries for which the broker took over a second
	Failed        uint64 // failures that no method could return as an error; each is logged

	// Blocked says that the broker may have stopped sending because too many messages are unacknowledged: see Observer.Blocked. It ends
	// with the next message.
	Blocked bool

	Reconnecting int // topics, or partitions, that have no connection now; unknown (0) after Wrap

	// Unfinished messages are settled, but other messages of their batches are not: if the Consumer is closed now, the broker sends them
	// again, unless it keeps batch-index acknowledgements. Arriving messages are the prefetched ones of such batches. Both are 0 while
	// IndexAcks is IndexAcksKept.
	Unfinished, Arriving int

	IndexAcks IndexAcks // what becomes of the acknowledgement of one message of a batch

	OldestWaiting time.Duration // how long the longest-waiting message has waited; 0 without WithObserver
}

// IndexAcks says what becomes of batch-index acknowledgements: those of single messages of a batch. Brokers keep them if broker.conf has
// acknowledgmentAtBatchIndexLevelEnabled=true, which is not Pulsar's default. The protocol does not say whether a broker does. The Consumer
// learns it when a batch comes again, or comes to it after another consumer acknowledged a part of it.
type IndexAcks string

// Values of IndexAcks. EnableBatchIndexAcknowledgment in pulsar.ConsumerOptions means IndexAcksKept until a batch shows otherwise.
const (
	IndexAcksOff     IndexAcks = "off"     // none is sent: an acknowledgement reaches the broker when the whole batch is acknowledged
	IndexAcksUnknown IndexAcks = "unknown" // they are sent, and the broker may keep them; after Wrap it is unknown whether they are sent
	IndexAcksIgnored IndexAcks = "ignored" // they are sent, and the broker sent an acknowledged message again
	IndexAcksKept    IndexAcks = "kept"    // they are sent, and the broker leaves acknowledged messages out of their batches
)

var indexAcks = map[ledger.IndexAcks]IndexAcks{ledger.NoIndexAcks: IndexAcksOff, ledger.SentIndexAcks: IndexAcksUnknown,
	ledger.IgnoredIndexAcks: IndexAcksIgnored, ledger.KeptIndexAcks: IndexAcksKept}

// Stats returns the Consumer's counters and its current state.
func (c *Consumer) Stats() Stats {
	s := c.ledger.Stats()
	acks := indexAcks[s.IndexAcks]
	if c.hooks.tick == 0 { // after Wrap
		acks = IndexAcksUnknown
	}
	return Stats{
		Waiting: s.Waiting, Ready: s.Ready, BufferedBytes: s.BufferedBytes, Buffered: s.Buffered, Dropped: s.Dropped, Redelivered: s.Redelivered,
		Swallowed: c.tally.swallowed.Load(), Late: s.Late, Failed: c.tally.failed.Load(), Blocked: c.blocked.on.Load(),
		Reconnecting: c.hooks.reconnections(), Unfinished: s.Unfinished, Arriving: s.Arriving, IndexAcks: acks, OldestWaiting: s.Oldest,
	}
}

// fail reports what cannot be returned. The operation is for observers.
func (c *Consumer) fail(operation, what string, err error, attrs ...any) {
	err = fmt.Errorf("%w", err) // without upstream's stack
	c.report(what, err, attrs...)
	c.failed(operation, err)
}

// report is fail without telling observers: they are told already.
func (c *Consumer) report(what string, err error, attrs ...any) {
	c.log(slog.LevelWarn, what+" failed", append(attrs, "error", err)...)
	c.tally.failed.Add(1)
}

// log logs what happened to the consumer. A panic of the application's handler is counted: nobody else could recover from most.
func (c *Consumer) log(level slog.Level, msg string, attrs ...any) {
	defer func() {
		if recover() != nil {
			c.tally.failed.Add(1)
		}
	}()
	c.settings.logger.Log(context.Background(), level, "redelivery: "+msg,
		append(attrs, "consumer", c.current().Name(), "subscription", c.current().Subscription())...)
}

// safely calls what may call code that is not ours, where nobody could recover from its panic.
func (c *Consumer) safely(call func()) {
	defer func() {
		if r := recover(); r != nil {
			c.panicked(r, true)
		}
	}()
	call()
}

// panicked reports the panic of code that is not ours, to observers too if they are to be told.
func (c *Consumer) panicked(r any, tell bool) {
	const what = "a callback"
	if err := fmt.Errorf("panic: %v", r); tell {
		c.fail("callback", what, err)
	} else {
		c.report(what, err)
	}
}
