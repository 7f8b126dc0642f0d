package redelivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// ReconsumeLaterNext publishes the message to the retry topic and then acknowledges it: PIP-94's reconsumeLater(msg). The broker
// delivers it from there after the next delay of the reconsume policy. After DLQPolicy.MaxDeliveries retries the message goes to
// the dead letter topic instead. See reconsume.Reconsumer.Later.
//
// On an error the message is not acknowledged and still the application's: nack it or try again. After
// reconsume.ErrNotAcknowledged the message was published all the same, and will come twice. After ErrNoRetryTopic and ErrNotHeld
// nothing was published; ErrNotHeld means that the message was settled before or is not one of this Consumer's. If ctx ends or
// the Consumer is closed during the call, nobody knows whether the message was published.
func (c *Consumer) ReconsumeLaterNext(ctx context.Context, msg pulsar.Message) error {
	_, err := c.reconsume(ctx, msg, true, func(ctx context.Context, cm pulsar.ConsumerMessage) error {
		return c.publisher.reconsumer.Later(ctx, cm)
	})
	return err
}

// ReconsumeLaterLevel is ReconsumeLaterNext with a delay level, counted from 1: PIP-94's reconsumeLater(msg, delayLevel). An
// unknown level is an error.
func (c *Consumer) ReconsumeLaterLevel(ctx context.Context, msg pulsar.Message, level int) error {
	_, err := c.reconsume(ctx, msg, true, func(ctx context.Context, cm pulsar.ConsumerMessage) error {
		return c.publisher.reconsumer.LaterLevel(ctx, cm, level)
	})
	return err
}

// ReconsumeLaterAfter is ReconsumeLaterNext with a delay in place of the policy's, and with properties that are added to the
// message's. A negative delay counts as 0.
func (c *Consumer) ReconsumeLaterAfter(ctx context.Context, msg pulsar.Message, delay time.Duration,
	properties map[string]string) error {
	_, err := c.reconsumeAfter(ctx, msg, delay, properties)
	return err
}

func (c *Consumer) reconsumeAfter(ctx context.Context, msg pulsar.Message, delay time.Duration,
	properties map[string]string) (told bool, err error) {
	return c.reconsume(ctx, msg, true, func(ctx context.Context, cm pulsar.ConsumerMessage) error {
		return c.publisher.reconsumer.LaterAfter(ctx, cm, delay, properties)
	})
}

// DeadLetter publishes the message to the dead letter topic, with the reason, and then acknowledges it. It needs a DLQ policy or
// a retry topic. Its errors are those of ReconsumeLaterNext.
func (c *Consumer) DeadLetter(ctx context.Context, msg pulsar.Message, reason error) error {
	_, err := c.reconsume(ctx, msg, false, func(ctx context.Context, cm pulsar.ConsumerMessage) error {
		return c.publisher.reconsumer.DeadLetter(ctx, cm, reason)
	})
	return err
}

// ReconsumeLater is ReconsumeLaterAfter for callers of pulsar.Consumer. It cannot return an error: it logs the error, counts it
// in Stats and nacks the message.
func (c *Consumer) ReconsumeLater(msg pulsar.Message, delay time.Duration) {
	c.ReconsumeLaterWithCustomProperties(msg, nil, delay)
}

// ReconsumeLaterWithCustomProperties is ReconsumeLater with properties added to the message.
func (c *Consumer) ReconsumeLaterWithCustomProperties(msg pulsar.Message, properties map[string]string, delay time.Duration) {
	told, err := c.reconsumeAfter(context.Background(), msg, delay, properties)
	switch {
	case err == nil:
		return
	case told:
		c.report("reconsume later", err)
	default:
		c.fail("reconsume", "reconsume later", err)
	}
	if n, err := c.nameOf(msg); err == nil {
		if err := c.nack(n, msg, nil, nil); err != nil {
			c.fail("nack", "nack", err)
		}
	}
}

// reconsume settles a message by publishing it elsewhere, to the retry topic if it is a retry, and acknowledging its newest
// delivery. told says that observers know of it.
func (c *Consumer) reconsume(ctx context.Context, msg pulsar.Message, retry bool,
	publish func(context.Context, pulsar.ConsumerMessage) error) (told bool, err error) {
	n, err := c.nameOf(msg)
	if err != nil {
		return false, err
	}
	if c.publisher.reconsumer == nil || retry && !c.publisher.retries {
		return false, ErrNoRetryTopic
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if c.life.ended.Err() != nil {
		return false, ErrClosed
	}
	s, standing, err := c.ledger.Settle(ctx, c.life.ended, n)
	switch {
	case err != nil:
		return false, err
	case standing == ledger.Busy:
		return false, ErrClosed
	case standing != ledger.Unsettled:
		return false, fmt.Errorf("%w: %v", ErrNotHeld, n.ID)
	}
	if !n.HasHand { // as for Delivery
		s.Count = max(s.Count, msg.RedeliveryCount())
	}
	return true, c.publish(ctx, s, original(msg), func(ctx context.Context, cm pulsar.ConsumerMessage) func() error {
		return func() error { return publish(ctx, cm) }
	})()
}

// publication begins to publish a message. wait waits for the broker's answer, and acknowledges the message then.
type publication func(context.Context, pulsar.ConsumerMessage) (wait func() error)

// publish begins to publish a message that is being settled. finish, which must be called, waits until that is over.
func (c *Consumer) publish(ctx context.Context, s ledger.Settling, msg pulsar.Message, start publication) (finish func() error) {
	if !c.calls.Enter() {
		c.finishSettling(&s, ErrClosed)
		return func() error { return ErrClosed }
	}
	ctx, told := c.publishes(ctx, s, msg)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.life.ended, func() { cancel(ErrClosed) })
	end := func(err error) error {
		if stop(); err != nil && c.life.ended.Err() != nil && !errors.Is(err, ErrClosed) {
			err = fmt.Errorf("%w: %w", ErrClosed, err)
		}
		cancel(nil)
		c.calls.Leave()
		c.finishSettling(&s, err)
		told(err)
		return err
	}
	started := false
	defer func() {
		if !started {
			_ = end(errPanicked)
		}
	}()
	wait := start(ctx, pulsar.ConsumerMessage{Consumer: s.Consumer, Message: identified{msg, s.ID, s.Count}})
	started = true
	return func() (err error) {
		err = errPanicked
		defer func() { err = end(err) }()
		return wait()
	}
}
