package redelivery

import (
	"errors"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// Seek resets the subscription to a message id. The Consumer forgets the messages that it received before the call. If
// such a message is nacked after the call and comes again, it comes after the nack's delay, with a count of 1 or more.
//
// With a retry topic, Seek resets the subscription of the main topic only. It closes the consumer at the broker, and
// subscribes again twice, so the broker redelivers at once the messages of the retry topic that the Consumer or the
// application holds. Other messages of the retry topic stay there. The message that id names is delivered again, with
// or without StartMessageIDInclusive. With a retry topic, Seek needs one main topic, a durable subscription, and
// Subscribe or SubscribeWith; otherwise it returns an error that satisfies errors.Is with errors.ErrUnsupported.
func (c *Consumer) Seek(id pulsar.MessageID) error {
	if err := upstream.CheckID(id); err != nil {
		return err
	}
	if !upstream.IsMessageID(id) {
		return foreign(id) // pulsar-client-go would stop dispatching until it reconnects
	}
	return c.seek(func(inner pulsar.Consumer) error { return inner.Seek(id) })
}

// SeekByTime resets the subscription to a publish time. The Consumer forgets the messages that it received before the
// call, as Seek does. With a retry topic it works as Seek does.
func (c *Consumer) SeekByTime(t time.Time) error {
	return c.seek(func(inner pulsar.Consumer) error { return inner.SeekByTime(t) })
}

// Unsubscribe deletes the subscription. The Consumer forgets the messages received before. Close the Consumer
// afterwards: prefetched messages can still be received, but not acknowledged.
func (c *Consumer) Unsubscribe() error {
	return c.unsubscribe(pulsar.Consumer.Unsubscribe)
}

// UnsubscribeForce deletes the subscription and disconnects its consumers. The Consumer forgets the messages received
// before.
func (c *Consumer) UnsubscribeForce() error {
	return c.unsubscribe(pulsar.Consumer.UnsubscribeForce)
}

func (c *Consumer) unsubscribe(how func(pulsar.Consumer) error) error {
	return c.withReaderStopped(func() error {
		err := how(c.current())
		if err == nil {
			c.inner.subscribeAgain, c.inner.subscribeMain = nil, nil
		}
		return err
	})
}

// seek calls how with the inner consumer. If the inner consumer reads a retry topic too, how gets a consumer of the
// main topic alone: pulsar-client-go seeks on one topic only.
func (c *Consumer) seek(how func(pulsar.Consumer) error) error {
	if c.settings.ownRetryTopic() == "" {
		return c.withReaderStopped(func() error { return how(c.current()) })
	}
	if err := c.interrupt(); err != nil {
		return err
	}
	defer c.turn.give()
	if c.inner.subscribeMain == nil {
		return fmt.Errorf("redelivery: Seek with a retry topic: %w: want Subscribe, one topic, and a durable "+
			"subscription that Unsubscribe has not deleted", errors.ErrUnsupported)
	}
	if err := c.detach(); err != nil {
		return err
	}
	err := c.callUntilEnded(func() error {
		main, err := c.inner.subscribeMain()
		if err != nil {
			return err
		}
		defer main.Close()
		return how(main)
	})
	if err == nil {
		c.forget()
	}
	_ = c.resubscribe(c.ended) // after an error the next Receive tries again, and reports its own error
	if c.isOver() {
		return ErrClosed
	}
	return err
}

// withReaderStopped calls the inner consumer while no goroutine takes messages from it, and forgets the messages
// received before. A Seek of pulsar-client-go drains its channel, and can block if another goroutine reads the channel
// too; Unsubscribe of its zero-queue consumer waits for a Receive to end.
func (c *Consumer) withReaderStopped(call func() error) error {
	if err := c.interrupt(); err != nil {
		return err
	}
	defer c.turn.give()
	if c.inner.isDetached {
		if err := c.resubscribe(c.ended); c.isOver() {
			return ErrClosed
		} else if err != nil {
			return fmt.Errorf("redelivery: subscribing again after GiveBack: %w", err)
		}
	}
	if err := c.callUntilEnded(call); err != nil {
		return err
	}
	c.forget()
	return nil
}

// interrupt takes the turn from the goroutine that waits for a message.
func (c *Consumer) interrupt() error {
	defer c.pause.interrupt()()
	c.wakeUp()
	if err := c.turn.take(c.ended, c.ended.Done()); err != nil || c.isOver() {
		if err == nil {
			c.turn.give()
		}
		return ErrClosed
	}
	c.reader.Recall()
	return nil
}

func (c *Consumer) forget() {
	c.acksAgain.clear()
	c.letters.clear()
	c.reader.Forget()
	now := c.lock()
	c.group.Forget()
	c.unlockAndAct(now)
	if c.attempts != nil {
		c.attempts.Reset()
	}
	c.emptyChannel()
}
