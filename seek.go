package redelivery

import (
	"errors"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Seek resets the subscription to a message id. The Consumer forgets the messages received before: their nacks no longer
// redeliver them.
//
// With a retry topic, Seek resets the subscription of the main topic only. It closes the consumer at the broker, and subscribes again twice,
// so the broker redelivers at once the messages of the retry topic that the Consumer or the application holds. Other messages of the retry
// topic stay there. The message that id names is delivered again, with or without StartMessageIDInclusive. Seek then needs one main topic, a
// durable subscription, and Subscribe or SubscribeWith; otherwise the error satisfies errors.Is with errors.ErrUnsupported.
func (c *Consumer) Seek(id pulsar.MessageID) error {
	if err := checkID(id); err != nil {
		return err
	}
	if !isPulsarID(id) {
		return foreign(id) // upstream would stop dispatching until it reconnects
	}
	return c.seek(func(inner pulsar.Consumer) error { return inner.Seek(id) })
}

// SeekByTime resets the subscription to a publish time. The Consumer forgets the messages received before: their nacks no
// longer redeliver them. With a retry topic it does what Seek does.
func (c *Consumer) SeekByTime(t time.Time) error {
	return c.seek(func(inner pulsar.Consumer) error { return inner.SeekByTime(t) })
}

// seek calls the inner consumer, or one of the main topic alone if the inner one reads a retry topic too: upstream seeks on one topic only.
func (c *Consumer) seek(how func(pulsar.Consumer) error) error {
	if c.publisher.retryTopic == "" || !c.inner.hasRetryTopic {
		return c.withReaderStopped(func() error { return how(c.current()) })
	}
	if c.inner.main == nil {
		return fmt.Errorf("redelivery: Seek with a retry topic: %w: want Subscribe, one topic, and a durable subscription", errors.ErrUnsupported)
	}
	if err := c.intake.Interrupt(); err != nil {
		return ErrClosed
	}
	defer c.intake.Release()
	if c.inner.deleted {
		return fmt.Errorf("redelivery: Seek: %w: the subscription was deleted", errors.ErrUnsupported)
	}
	c.seeking.Store(true)
	defer c.seeking.Store(false)
	if c.inner.back != nil { // it may subscribe at any time
		_ = c.resubscribe(c.life.ended)
	}
	if !c.inner.away {
		c.leave()
	}
	err := c.untilClosed(func() error {
		main, err := c.inner.main()
		if err != nil {
			return err
		}
		defer main.Close()
		return how(main)
	})
	if err == nil {
		c.forget()
	}
	again := c.resubscribe(c.life.ended)
	switch {
	case c.life.ended.Err() != nil:
		return ErrClosed
	case again != nil: // the next Receive tries again
		c.fail("receive", "subscribing again", again)
	}
	return err
}

// withReaderStopped calls the inner consumer while nobody takes messages from it, and forgets what was received before. Upstream's Seek
// drains its channel and can block against a second reader; its zero-queue consumer has Unsubscribe wait for Receive.
func (c *Consumer) withReaderStopped(call func() error) error {
	if err := c.intake.Interrupt(); err != nil {
		return ErrClosed
	}
	defer c.intake.Release()
	if c.inner.away {
		if err := c.resubscribe(c.life.ended); c.life.ended.Err() != nil {
			return ErrClosed
		} else if err != nil {
			return fmt.Errorf("redelivery: subscribing again after GiveBack: %w", err)
		}
	}
	c.seeking.Store(true)
	defer c.seeking.Store(false)
	if err := c.untilClosed(call); err != nil {
		return err
	}
	c.forget()
	return nil
}

// forget lets go of what was received before.
func (c *Consumer) forget() {
	c.life.next()
	c.intake.Forget()
	c.ledger.Clear()
	if c.attempts != nil {
		c.attempts.Reset()
	}
	c.emptyOutlet()
}
