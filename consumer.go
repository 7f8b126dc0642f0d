package redelivery

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// Consumer is a pulsar.Consumer that redelivers by policy. A message that the application nacks, or does not settle
// before its ack timeout, comes back after the delay that the policy gives for its redelivery count, and never earlier.
// Subscribe, SubscribeWith and Wrap make a Consumer. It is safe for concurrent use.
//
// Methods of pulsar.Consumer that are not documented here behave as in pulsar-client-go. No method panics on a message
// or id that is nil or did not come from pulsar-client-go. The method returns an error; a method without an error
// result logs a warning and counts the failure in Stats. An application may wrap messages. If the wrapper has a method
// Unwrap() pulsar.Message, the Consumer can publish a message that does not fit the memory limit, and recognizes a nack
// of an earlier delivery. A Consumer may acknowledge a message that another Consumer of the same topics received. It
// must then acknowledge all messages of the batch: otherwise the broker never learns that the batch is acknowledged. A
// nack of such a message does not redeliver it.
type Consumer struct {
	settings *settings
	attempts *attempts.Log // nil without WithAttemptLog
	observer Observer      // calls the functions of all observers
	hooks    *upstream.Hooks
	messages upstream.Messages
	inner    inner

	// group decides the next state of each message; the comment of package partition says how to call it. mu guards
	// group, and is not held while other code is called.
	mu      sync.Mutex
	group   *partition.Group
	alarm   *time.Timer   // for group's next timer
	alarmAt time.Duration // when alarm goes off, in group's time
	offered *offer        // the message that Chan offers; nil if none
	start   time.Time     // zero of group's time; 1 ns early, so that now never returns 0

	isReady  atomic.Bool   // group has a message for Take
	mustPoll atomic.Bool   // the inner consumer may have closed itself, which only its Receive shows
	wake     chan struct{} // has an element if the goroutine that waits for a message must look for other work

	turn    *turn // to read from upstream
	reader  *upstream.Reader
	pause   pause
	channel channel // the channel that Chan returns
	loss    loss
	blocked blocked

	calls         *gate              // calls of the inner consumer
	goroutines    *gate              // goroutines of the Consumer
	ended         context.Context    // done when Close begins, or when the inner consumer has closed itself
	end           context.CancelFunc // ends ended
	publishing    context.Context    // done when Close no longer waits for publications
	endPublishing context.CancelFunc // ends publishing
	closing       atomic.Bool        // Close was called
	closed        chan struct{}      // closed when Close is over
	openTopics    atomic.Int32       // topics whose consumers are open; about manyTopics if their number is unknown

	acksAgain     queue         // acknowledgements of copies of settled messages
	observerCalls queue         // calls of observers that the reporting goroutine must not wait for
	letters       queue         // publications without a waiting caller: dead letters, and nacks for the retry topic
	underway      chan struct{} // has an element for each publication without a waiting caller

	limitExceeded sync.Once // for warnOfLimit

	swallowed, failures, buffered, dropped, redelivered, late atomic.Uint64
}

// newConsumer returns a Consumer that has no inner consumer yet, with an open log of attempts. Upstream may call the
// hooks before begin sets the inner consumer.
func newConsumer(s *settings) (*Consumer, error) {
	s.fillOptions()
	c := &Consumer{
		settings: s, group: partition.New(s.groupOptions()),
		start: time.Now().Add(-time.Nanosecond), alarmAt: math.MaxInt64,
		wake: make(chan struct{}, 1), turn: newTurn(),
		calls: newGate(), goroutines: newGate(), closed: make(chan struct{}),
		underway: make(chan struct{}, maxUnderway),
	}
	c.ended, c.end = context.WithCancel(context.Background())
	c.publishing, c.endPublishing = context.WithCancel(context.Background())
	c.channel.messages = s.opts.MessageChannel
	if c.channel.messages == nil {
		c.channel.messages = make(chan pulsar.ConsumerMessage)
	}
	c.hooks = upstream.NewHooks(upstream.Events{Lost: c.lost, Prefetched: c.prefetched, Active: c.active,
		Closed: c.childClosed, Outer: c.outer})
	c.alarm = time.AfterFunc(math.MaxInt64, c.alarmOver)
	c.openTopics.Store(s.countTopics())
	c.mustPoll.Store(s.isWrapped || s.opts.TopicsPattern != "")
	c.observe(s.observers)
	var err error
	if c.attempts, err = s.openLog(c.logUnusable); err != nil {
		c.abandon()
		return nil, err
	}
	return c, nil
}

// abandon releases the resources of a Consumer whose subscribing failed.
func (c *Consumer) abandon() {
	c.end()
	c.endPublishing()
	c.alarm.Stop()
	c.settings.closePublisher()
	c.closeLog()
}

// begin begins to drive the inner consumer.
func (c *Consumer) begin(inner pulsar.Consumer) {
	c.newReader(inner)
	c.inner.consumer.Store(&inner) // from now on interceptors may call the Consumer
	if c.isOver() {                // innerClosed had no consumer to close
		inner.Close()
	}
	context.AfterFunc(c.ended, func() {
		c.wakeUp()
		if !c.closing.Load() { // the Consumer gave up; otherwise Close reports the loss
			c.endPublishing()
			c.reportLossOfConsumer()
		}
	})
	if c.inner.subscribeAgain != nil { // after GiveBack the client may have no inner consumer to close
		context.AfterFunc(c.ended, upstream.OnClientClose(inner, func() { go c.innerClosed(nil) }))
	}
	if c.observer.Subscribed != nil {
		c.observer.Subscribed(c)
	}
	if c.settings.opts.MessageChannel != nil {
		c.startFeeder()
	}
}

func (c *Consumer) newReader(inner pulsar.Consumer) {
	_, ahead := c.settings.buffer()
	c.reader = upstream.NewReader(c.ended, inner, ahead, c.receiveFailed)
}

// outer returns the consumer that the application's interceptors and listeners get in place of the inner consumer or
// one of its children.
func (c *Consumer) outer(inner pulsar.Consumer) pulsar.Consumer {
	if c.inner.consumer.Load() == nil { // Subscribe has not returned
		return inner
	}
	return c
}

// current returns the inner consumer. After GiveBack it is closed, until another one replaces it.
func (c *Consumer) current() pulsar.Consumer { return *c.inner.consumer.Load() }

// Name returns the name of the consumer.
func (c *Consumer) Name() string { return c.current().Name() }

// consumerName returns Name, or "" if Subscribe has not returned yet.
func (c *Consumer) consumerName() string {
	if inner := c.inner.consumer.Load(); inner != nil {
		return (*inner).Name()
	}
	return ""
}

// Subscription returns the subscription's name.
func (c *Consumer) Subscription() string { return c.settings.Subscription }

// GetLastMessageIDs returns the id of the last message published to each partition. With TopicsPattern it must not be
// called while topics appear or vanish: pulsar-client-go reads its own list of topics without a lock.
func (c *Consumer) GetLastMessageIDs() ([]pulsar.TopicMessageID, error) {
	answer := make(chan []pulsar.TopicMessageID, 1)
	err := c.callUntilEnded(func() error {
		ids, err := c.current().GetLastMessageIDs()
		answer <- ids
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-answer, nil
}

// reportFailure logs and counts an error that no method can return, and reports it to observers. what names the
// operation for the log line, which says that it failed; operation names it for observers.
func (c *Consumer) reportFailure(operation, what string, err error, attrs ...any) {
	err = fmt.Errorf("%w", err) // so that %+v does not print the stack that upstream's error has
	c.logFailed(what, err, attrs...)
	if c.observer.Failed != nil {
		c.observerCalls.add(c, func() { c.observer.Failed(Failed{c, c.settings.Subscription, operation, err}) })
	}
}

// logFailed logs and counts an error that observers already know.
func (c *Consumer) logFailed(what string, err error, attrs ...any) {
	c.log(slog.LevelWarn, what+" failed", append(attrs, "error", err)...)
	c.failures.Add(1)
}

// log logs a line with the names of the consumer and the subscription. Ids of messages become text: as JSON they would
// be {}, since their types have no exported fields.
func (c *Consumer) log(level slog.Level, msg string, attrs ...any) {
	for i, value := range attrs {
		if id, ok := value.(pulsar.MessageID); ok {
			attrs[i] = id.String()
		}
	}
	c.settings.logger.Log(context.Background(), level, "redelivery: "+msg,
		append(attrs, "consumer", c.consumerName(), "subscription", c.settings.Subscription)...)
}
