package redelivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/intake"
	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// Receive returns the next message: one that is due for redelivery or the next of the subscription. It blocks until there is one.
// It returns an error when ctx is done or the Consumer is closed.
func (c *Consumer) Receive(ctx context.Context) (pulsar.Message, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	d, err := c.next(ctx)
	if err != nil {
		return nil, err
	}
	msg := messageOf(d)
	c.intercept(d, msg)
	if !c.observed.any {
		c.hold(d)
		return msg, nil
	}
	var told Delivered
	c.delivery(&told, &d, msg)
	c.hold(d)
	c.delivered(&told)
	return msg, nil
}

// outlet is the channel that Chan returns, and what feeds it.
type outlet struct {
	ch   chan pulsar.ConsumerMessage
	once sync.Once
}

// Chan returns a channel of messages; the Consumer field of each is this Consumer. The channel is the MessageChannel of
// pulsar.ConsumerOptions, if there was one. The application has a message when it has taken it from the channel. Unlike the
// channel of pulsar-client-go, this one has no buffer of its own. Like that one, it is never closed.
func (c *Consumer) Chan() <-chan pulsar.ConsumerMessage {
	c.startFeeder()
	return c.outlet.ch
}

func (c *Consumer) startFeeder() {
	c.outlet.once.Do(func() {
		if c.crew.Enter() {
			go c.feed()
		}
	})
}

// feed sends messages on the channel until the Consumer is closed.
func (c *Consumer) feed() {
	for {
		era := c.life.now()
		d, err := c.next(c.life.ended)
		if err != nil {
			c.crew.Leave()
			return
		}
		msg := messageOf(d)
		if !c.outside(func() { c.intercept(d, msg) }) {
			return
		}
		var told Delivered
		c.delivery(&told, &d, msg)
		if c.offer(era, d, msg) && !c.outside(func() { c.hold(d); c.delivered(&told) }) {
			return
		}
	}
}

// outside calls what is not our code from a goroutine of the crew, which leaves meanwhile: it may call Close, which waits for
// the crew. outside reports false if the Consumer was closed, so that the goroutine must end.
func (c *Consumer) outside(call func()) bool {
	c.crew.Leave()
	call()
	return c.crew.Enter()
}

// offer sends a message on the channel, unless it is settled or forgotten before the application takes it.
func (c *Consumer) offer(era context.Context, d ledger.Delivery, msg pulsar.Message) (sent bool) {
	var withdrawn <-chan struct{}
	if isTracked(d.Message) {
		var ok bool
		if withdrawn, ok = c.ledger.Offer(d); !ok {
			return false
		}
		defer func() { c.ledger.Offered(d, sent) }()
	}
	select {
	case c.outlet.ch <- pulsar.ConsumerMessage{Consumer: c, Message: msg}:
		return true
	case <-withdrawn:
	case <-era.Done():
	}
	return false
}

// next takes the next message for the application.
func (c *Consumer) next(ctx context.Context) (d ledger.Delivery, err error) {
	if err := ctx.Err(); err != nil && ctx != c.life.ended {
		return d, err
	}
	if err := c.intake.Acquire(ctx); err != nil {
		return d, c.receiveError(ctx, err)
	}
	hasTurn := true
	defer func() {
		if hasTurn {
			c.intake.Release()
		}
	}()
	for c.life.ended.Err() == nil {
		d, ok := c.ledger.Next()
		if !ok {
			cm, event, err := c.intake.Take(ctx)
			switch {
			case errors.Is(err, intake.ErrUndecryptable):
				c.fail("receive", "receiving", err)
				continue
			case err != nil:
				if ctx.Err() == nil && !errors.Is(err, intake.ErrClosed) {
					c.life.end()
				}
				hasTurn = false
				c.intake.Release()
				return d, c.receiveError(ctx, err)
			case event == intake.Lent:
				hasTurn = false
				if err := c.intake.Acquire(ctx); err != nil {
					return d, c.receiveError(ctx, err)
				}
				hasTurn = true
				continue
			case event == intake.Idle:
				c.idle()
				continue
			case event == intake.Woken:
				continue
			}
			if d, ok = c.arrive(cm); !ok {
				continue
			}
		}
		if c.hooks.nacksUndecryptable && d.Message.GetEncryptionContext() != nil {
			c.ledger.Nack(d, c.delay(c.settings.nackBackoff, d.Count), nil, ledger.Failed)
			continue
		}
		if c.publisher.givesUp(d) {
			c.giveUp(d, ledger.GivenUp, nil)
			continue
		}
		return d, nil
	}
	hasTurn = false
	c.intake.Release()
	return d, c.receiveError(ctx, intake.ErrClosed)
}

// receiveError returns the inner consumer's own error for a closed consumer, once it is closed. Until then its Receive would
// take messages from under a seek, which hangs then, and keep a zero-queue consumer from being closed.
func (c *Consumer) receiveError(ctx context.Context, err error) error {
	if !errors.Is(err, intake.ErrClosed) || ctx == c.life.ended {
		return err
	}
	if c.life.closing.Load() {
		select {
		case <-c.life.closed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		if _, err := c.inner.Receive(ctx); err != nil {
			return err
		}
	}
}

// idle acts where nothing came for a second although somebody waited.
func (c *Consumer) idle() {
	c.ledger.Idle()
	if !c.settings.rewinds && !c.warned.Load() && c.ledger.Unsettled() >= nearLimit && c.warned.CompareAndSwap(false, true) {
		c.log(slog.LevelWarn, "many messages are unacknowledged, close to the broker's limit, where it stops sending: those that "+
			"wait for redelivery count too", "unacknowledged", nearLimit)
	}
}

// nearLimit is where a warning is due. The broker stops sending at 50,000 unacknowledged messages for each consumer of a
// partition, on Shared and Key_Shared, by default (maxUnackedMessagesPerConsumer).
const nearLimit = 45_000

// arrive enters a message into the ledger and reports whether it goes to the application now.
func (c *Consumer) arrive(cm pulsar.ConsumerMessage) (ledger.Delivery, bool) {
	if !isTracked(cm.Message) {
		return ledger.Delivery{Consumer: cm.Consumer, Message: cm.Message, Count: cm.RedeliveryCount()}, true
	}
	if c.raw.Load() == nil {
		c.raw.Store(reflect.TypeOf(cm.Message))
	}
	var retry ledger.Retry
	if c.publisher.isRetry(cm.Message) {
		retry = retryOf(cm.Message, time.Now())
	}
	d, verdict := c.ledger.Arrive(cm, retry)
	if verdict == ledger.Swallow {
		c.tally.swallowed.Add(1)
		c.start(&c.swallows, func(context.Context) { c.ackAgain("a settled message again", d.Consumer, d.ID) })
	}
	c.arrived(cm, verdict)
	return d, verdict == ledger.Deliver
}

// isTracked reports whether a message can be redelivered. Of non-persistent topics the broker keeps none.
func isTracked(msg pulsar.Message) bool { return !strings.HasPrefix(msg.Topic(), nonPersistent) }

// hold starts the ack timeout of a message that the application has now.
func (c *Consumer) hold(d ledger.Delivery) {
	if c.settings.ackTimeout != nil && isTracked(d.Message) {
		c.ledger.Hold(d, c.delay(c.settings.ackTimeout, d.Count))
	}
}

// intercept tells the application's interceptors that a message is handed out, and that it was redelivered if the inner
// consumer was not asked for it and knows nothing of that. A panic of theirs loses no message.
func (c *Consumer) intercept(d ledger.Delivery, msg pulsar.Message) {
	if len(c.hooks.of) == 0 {
		return
	}
	if d.Unasked {
		c.safely(func() { c.hooks.of.OnNegativeAcksSend(c, []pulsar.MessageID{msg.ID()}) })
	}
	c.safely(func() { c.hooks.of.BeforeConsume(pulsar.ConsumerMessage{Consumer: c, Message: msg}) })
}

// safely calls what may call code that is not ours, where nobody could recover from its panic.
func (c *Consumer) safely(call func()) {
	defer func() {
		if r := recover(); r != nil {
			c.fail("callback", "a callback", fmt.Errorf("panic: %v", r))
		}
	}()
	call()
}
