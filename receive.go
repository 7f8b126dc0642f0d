package redelivery

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/intake"
	"github.com/pulsar-redelivery/redelivery/internal/ledger"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// Receive returns the next message: one that is due for redelivery or the next of the subscription. It blocks until there is one.
// It returns an error when ctx is done or the Consumer is closed. After Chan, or with MessageChannel in pulsar.ConsumerOptions, it takes
// the message from that channel.
func (c *Consumer) Receive(ctx context.Context) (pulsar.Message, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	if c.outlet.fed.Load() {
		return c.receiveFed(ctx)
	}
	var d ledger.Delivery
	if err := c.next(ctx, &d); err != nil {
		return nil, err
	}
	msg := messageOf(&d)
	c.intercept(&d, msg)
	if !c.observer.any {
		c.startTimeout(&d)
		return msg, nil
	}
	told := c.deliveredEvent(&d, msg)
	c.startTimeout(&d)
	c.delivered(told)
	return msg, nil
}

// next takes the next message for the application.
func (c *Consumer) next(ctx context.Context, d *ledger.Delivery) error {
	if err := ctx.Err(); err != nil && ctx != c.life.ended {
		return err
	}
	for {
		if err := c.unpaused(ctx); err != nil {
			return c.receiveError(ctx, err)
		}
		interrupted, err := c.take(ctx, d)
		switch {
		case err != nil:
			return c.receiveError(ctx, err)
		case !interrupted:
			return nil
		}
	}
}

// take is next while the caller has the turn, and reports whether somebody wants that for something else, or to pause.
func (c *Consumer) take(ctx context.Context, d *ledger.Delivery) (interrupted bool, err error) {
	if err := c.intake.Acquire(ctx); err != nil {
		return false, err
	}
	defer c.intake.Release()
	for c.life.ended.Err() == nil {
		if c.pause.on.Load() {
			return true, nil
		}
		if c.inner.away {
			if err := c.comeBack(ctx); err != nil {
				return false, err
			}
			return true, nil // somebody may want the turn meanwhile
		}
		newsTurn := c.cameAgain && c.intake.IsReady() // or messages that always fail would keep what is new waiting
		if c.cameAgain = c.ledger.Next(d, newsTurn); !c.cameAgain {
			cm, event, err := c.intake.Take(ctx)
			switch {
			case err == nil:
			case errors.Is(err, intake.ErrUndecryptable):
				c.tell(func() { c.fail("receive", "receiving", err) })
				continue
			default:
				if ctx.Err() == nil && !errors.Is(err, intake.ErrClosed) {
					c.life.end()
				}
				return false, err
			}
			switch event {
			case intake.Interrupted:
				return true, nil
			case intake.Woken:
				continue
			case intake.Message:
			}
			if !c.arrive(cm, d) {
				c.cameAgain = newsTurn // it is still what is new that has its turn
				continue
			}
		}
		if c.hooks.nacksUndecryptable && d.Message.GetEncryptionContext() != nil {
			undecryptable := *d
			c.start(&c.callbacks, func(context.Context) {
				c.withDelay(c.settings.nackBackoff, undecryptable.Count, func(delay time.Duration) {
					c.ledger.Nack(undecryptable, delay, nil, ledger.Unreadable)
				})
			})
			continue
		}
		if c.publisher.givesUp(d) {
			c.giveUpAside(*d, ledger.GivenUp)
			continue
		}
		return false, nil
	}
	return false, intake.ErrClosed
}

// receiveError returns the inner consumer's own error for a closed consumer, once it is closed. Until then its Receive would
// take messages from under a seek, which hangs then, and keep a zero-queue consumer from being closed.
func (c *Consumer) receiveError(ctx context.Context, err error) error {
	if !errors.Is(err, intake.ErrClosed) || ctx == c.life.ended {
		return err
	}
	if c.life.closing.Load() {
		if c.awaitClosed(ctx); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	for {
		if _, err := c.current().Receive(ctx); err != nil {
			return err
		}
	}
}

// arrive enters a message into the ledger and reports whether it goes to the application now.
func (c *Consumer) arrive(cm pulsar.ConsumerMessage, d *ledger.Delivery) bool {
	if !isTracked(cm.Message) {
		*d = ledger.Delivery{Consumer: cm.Consumer, Message: cm.Message, Count: cm.RedeliveryCount()}
		return true
	}
	if c.raw.Load() == nil {
		c.raw.Store(reflect.TypeOf(cm.Message))
	}
	var retry ledger.Retry
	if c.publisher.isRetry(cm.Message) {
		retry = retryOf(cm.Message)
	}
	c.attempts.recall(cm.Message, &retry)
	if h := c.hooks; h.nacksUndecryptable && h.lost.Load() > 0 && cm.GetEncryptionContext() != nil {
		c.ledger.Received(cm.Topic(), cm.ID()) // upstream calls no interceptor with what it cannot decrypt
	}
	verdict := c.ledger.Arrive(cm, retry, d)
	c.blocked.ends()
	if verdict == ledger.Deliver {
		return true
	}
	if verdict == ledger.AckDuplicate {
		c.tally.swallowed.Add(1)
		consumer, n := d.Consumer, ledger.Name{ID: d.ID, Topic: cm.Topic()}
		c.start(&c.swallows, func(context.Context) {
			c.ackAgain("a settled message again", consumer, n, minAckPause, c.ackID)
		})
	}
	c.arrived(cm, verdict)
	return false
}

// isTracked reports whether a message can be redelivered. Of non-persistent topics the broker keeps none.
func isTracked(msg pulsar.Message) bool { return topicname.IsPersistent(msg.Topic()) }

// startTimeout starts the ack timeout of a message that the application has now.
func (c *Consumer) startTimeout(d *ledger.Delivery) {
	if c.settings.ackTimeout != nil && d.ID != nil {
		c.withDelay(c.settings.ackTimeout, d.Count, func(timeout time.Duration) { c.ledger.StartTimeout(*d, timeout) })
	}
}

// intercept tells the application's interceptors that a message is delivered. If it comes from memory, so that the inner consumer knows
// nothing of its redelivery, it also tells them of the nack. If an interceptor panics or calls runtime.Goexit, no message is lost.
func (c *Consumer) intercept(d *ledger.Delivery, msg pulsar.Message) {
	if len(c.hooks.of) == 0 {
		return
	}
	returned := false
	defer func() {
		if !returned && d.ID != nil { // whoever receives next gets it
			c.ledger.Nack(*d, 0, d.Message, ledger.GivenUp)
		}
	}()
	if d.Unasked {
		c.safely(func() { c.hooks.of.OnNegativeAcksSend(c, []pulsar.MessageID{msg.ID()}) })
	}
	c.safely(func() { c.hooks.of.BeforeConsume(pulsar.ConsumerMessage{Consumer: c, Message: msg}) })
	returned = true
}
